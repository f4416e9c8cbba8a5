/* A wall clock of its own for every process that preloads this: the machine's, shifted by as many
   nanoseconds as the file $WALL_CLOCK_SHIFT says, from the moment it says so. The monotonic clock
   and the one of the machine's start (CLOCK_BOOTTIME) are the machine's.

   Whoever waits for an instant of the wall clock (librdkafka does, everywhere) feels a jump while
   it waits: the kernel ends such a wait early where the clock is set ahead, and late where it is
   set back. So do the waits here: they are cut into slices, and look at the clock after each.

   Needs glibc 2.30. Not here: timers and sleeps until an instant (timer_settime, timerfd_settime,
   clock_nanosleep) and pthread_mutex_timedlock: nothing in a node uses them with the wall clock. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define SLICE (SECOND / 10)

static const int64_t no_shift = 0;
static const volatile int64_t *shift = &no_shift;

__attribute__((constructor)) static void map_shift(void) {
    const char *path = getenv("WALL_CLOCK_SHIFT");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) shift = page;
    close(file);
}

static int64_t nanoseconds(const struct timespec *at) { return at->tv_sec * SECOND + at->tv_nsec; }

static struct timespec timespec_of(int64_t at) {
    return (struct timespec){.tv_sec = at / SECOND, .tv_nsec = at % SECOND};
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *); /* not a system call: the vDSO's way */
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, at);
    int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
    if (result == 0 && is_wall) *at = timespec_of(nanoseconds(at) + *shift);
    return result;
}

static int64_t now(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return nanoseconds(&at);
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone; /* nobody uses it */
    int64_t wall = now(CLOCK_REALTIME);
    *at = (struct timeval){.tv_sec = wall / SECOND, .tv_usec = wall % SECOND / 1000};
    return 0;
}

time_t time(time_t *copy) {
    time_t seconds = now(CLOCK_REALTIME) / SECOND;
    if (copy) *copy = seconds;
    return seconds;
}

int timespec_get(struct timespec *at, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, at) == 0 ? base : 0;
}

/* ------------------------------------------------------------------------------------- waits */

/* The next slice of a wait until `deadline` of the wall clock, as an instant of the monotonic one.
   Returns whether there is one after it. */
static int next_slice(const struct timespec *deadline, struct timespec *end) {
    int64_t left = nanoseconds(deadline) - now(CLOCK_REALTIME);
    int64_t wait = left < 0 ? 0 : left < SLICE ? left : SLICE;
    *end = timespec_of(now(CLOCK_MONOTONIC) + wait);
    return left > 0;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline) {
    /* The condition knows by which clock its deadlines are, and so does the deadline: no machine
       has been up for decades. */
    if (nanoseconds(deadline) < now(CLOCK_REALTIME) / 2)
        return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, deadline);
    struct timespec end;
    for (;;) {
        int more = next_slice(deadline, &end);
        int result = pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &end);
        if (result != ETIMEDOUT || !more) return result;
    }
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex,
                  const struct timespec *restrict deadline) {
    /* In glibc the two are the same thing under two names. */
    int result = pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex,
                                        deadline);
    return result == 0 ? thrd_success : result == ETIMEDOUT ? thrd_timedout : thrd_error;
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict deadline) {
    struct timespec end;
    for (;;) {
        int more = next_slice(deadline, &end);
        int result = sem_clockwait(semaphore, CLOCK_MONOTONIC, &end);
        if (result == 0 || errno != ETIMEDOUT || !more) return result;
    }
}
