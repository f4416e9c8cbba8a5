/* An open loop: requests come at a given rate, whether or not the server keeps up.

       open_loop PORT CONNECTIONS RATE SECONDS SEED REQUESTS WANTED

   Instants are drawn ahead (exponential gaps, as of many clients that know nothing of each other;
   so does pgbench --rate). A request that is due takes a free connection; if there is none, it
   waits, and its time runs: what is measured is from when it was due until its whole answer was
   there, so a server that stands still is felt by all requests that were due meanwhile.

   REQUESTS is a file of whole requests, each after its length (4 bytes, little-endian), taken in
   turn. An answer is good if it is HTTP with status 200, or a bulk string of Redis, and holds the
   text WANTED. It prints one line: requests due, good, bad, without an answer; seconds until the
   last answer; p50, p99, p99.9 and greatest time in us. bench/load/open_loop.py calls it. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_MAX = 1 << 20, CONNECTIONS_MAX = 1024 };

/* answers that are still out this long after the last request was due will not come */
static const double patience_s = 10;

struct connection {
    int socket;
    int is_busy;
    double due_s;
    size_t have;
    char *answer;
};

static void fail(const char *what) {
    fprintf(stderr, "open_loop: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_s(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static uint64_t drawn(uint64_t *state) { /* xorshift64* */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545F4914F6CDD1DULL;
}

static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) fail(path);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*size + 1);
    if (!data || fread(data, 1, *size, file) != *size) fail(path);
    fclose(file);
    return data;
}

static int connect_to(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int opened = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (opened < 0 || connect(opened, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(opened, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return opened;
}

/* Whether the answer is whole, and whether it is good. An answer of unknown form is an error. */
static int is_whole(struct connection *of, const char *wanted, int *is_good) {
    char *start = of->answer;
    start[of->have] = 0;
    char *end = strstr(start, *start == 'H' ? "\r\n\r\n" : "\r\n");
    if (!end) return 0;
    size_t head = (size_t)(end - start) + (*start == 'H' ? 4 : 2), length = 0;
    *is_good = 0;
    if (*start == 'H') {
        char *line = strcasestr(start, "\r\ncontent-length:");
        if (!line || line > end) {
            fprintf(stderr, "open_loop: an answer without a length: %.300s\n", start);
            exit(1);
        }
        length = strtoul(line + 17, NULL, 10);
        *is_good = !strncmp(start, "HTTP/1.1 200", 12);
    } else if (*start == '$' && start[1] != '-') {
        length = strtoul(start + 1, NULL, 10) + 2;
        *is_good = 1;
    }
    if (head + length > ANSWER_MAX - 1) {
        fprintf(stderr, "open_loop: an answer of %zu bytes\n", length);
        exit(1);
    }
    if (of->have < head + length) return 0;
    if (of->have > head + length) {
        fprintf(stderr, "open_loop: more than one answer\n");
        exit(1);
    }
    *is_good = *is_good && memmem(start + head, length, wanted, strlen(wanted)) != NULL;
    return 1;
}

static int ascending(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

static double quantile(const float *sorted, size_t count, double share) {
    size_t rank = (size_t)ceil(share * (double)count);
    return count ? sorted[rank ? rank - 1 : 0] : 0;
}

int main(int count, char **given) {
    if (count != 8) {
        fprintf(stderr, "open_loop PORT CONNECTIONS RATE SECONDS SEED REQUESTS WANTED\n");
        return 2;
    }
    const int connections = atoi(given[2]);
    const double rate = atof(given[3]), seconds = atof(given[4]);
    uint64_t state = strtoull(given[5], NULL, 10) * 2 + 1;
    const char *wanted = given[7];
    if (connections < 1 || connections > CONNECTIONS_MAX || rate <= 0 || seconds <= 0) return 2;

    size_t size, requests = 0;
    char *data = read_file(given[6], &size);
    for (size_t at = 0; at + 4 <= size; requests++) {
        uint32_t length;
        memcpy(&length, data + at, 4);
        at += 4 + length;
    }
    if (!requests) return 2;
    size_t *places = malloc(requests * sizeof *places);
    for (size_t at = 0, each = 0; each < requests; each++) {
        uint32_t length;
        places[each] = at;
        memcpy(&length, data + at, 4);
        at += 4 + length;
    }
    const size_t due_max = (size_t)(rate * seconds * 1.2) + 1000;
    double *due_s = malloc(due_max * sizeof *due_s);
    float *took_us = malloc(due_max * sizeof *took_us);
    size_t due = 0;
    for (double at = 0; due < due_max; due++) {
        at -= log(((double)(drawn(&state) >> 11) + 1) / 9007199254740993.0) / rate;
        if (at >= seconds) break;
        due_s[due] = at;
    }

    struct connection of[CONNECTIONS_MAX];
    int free_ones[CONNECTIONS_MAX], free_count = 0;
    const int poll = epoll_create1(0);
    for (int each = 0; each < connections; each++) {
        of[each] = (struct connection){connect_to(atoi(given[1])), 0, 0, 0, malloc(ANSWER_MAX)};
        struct epoll_event wish = {.events = EPOLLIN, .data.u32 = (uint32_t)each};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, of[each].socket, &wish)) fail("epoll");
        free_ones[free_count++] = each;
    }

    size_t sent = 0, good = 0, bad = 0;
    const double start = now_s() + 0.01;
    double last = start;
    while (good + bad < due) {
        const double now = now_s();
        if (now > start + seconds + patience_s) break;
        while (sent < due && free_count && start + due_s[sent] <= now) {
            struct connection *one = &of[free_ones[--free_count]];
            const char *request = data + places[sent % requests];
            uint32_t length;
            memcpy(&length, request, 4);
            one->is_busy = 1;
            one->have = 0;
            one->due_s = start + due_s[sent++];
            if (send(one->socket, request + 4, length, MSG_NOSIGNAL) != (ssize_t)length)
                fail("send");
        }
        struct epoll_event events[64];
        /* the core is ours alone: no sleep, which would end late */
        const int ready = epoll_wait(poll, events, 64, 0);
        for (int each = 0; each < ready; each++) {
            struct connection *one = &of[events[each].data.u32];
            ssize_t got =
                recv(one->socket, one->answer + one->have, ANSWER_MAX - 1 - one->have, 0);
            if (got <= 0 || !one->is_busy) fail("a connection was closed");
            one->have += (size_t)got;
            int is_good;
            if (!is_whole(one, wanted, &is_good)) continue;
            last = now_s();
            took_us[good + bad] = (float)((last - one->due_s) * 1e6);
            if (is_good) {
                good++;
            } else if (!bad++) {
                fprintf(stderr, "open_loop: a bad answer: %.500s\n", one->answer);
            }
            one->is_busy = 0;
            free_ones[free_count++] = (int)(one - of);
        }
    }
    const size_t answers = good + bad;
    qsort(took_us, answers, sizeof *took_us, ascending);
    printf("%zu %zu %zu %zu %.6f %.1f %.1f %.1f %.1f\n", due, good, bad, due - answers,
           last - start, quantile(took_us, answers, 0.5), quantile(took_us, answers, 0.99),
           quantile(took_us, answers, 0.999), quantile(took_us, answers, 1));
    return 0;
}
