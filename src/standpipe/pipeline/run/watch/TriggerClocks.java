package standpipe;

import java.lang.ref.WeakReference;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.sources.ForeachBatchSink;
import org.apache.spark.sql.execution.streaming.sources.PythonForeachBatchFunction;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.Trigger;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.util.Clock;
import scala.Option;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/**
 * Starts streaming queries that sleep between two triggers until they are woken. Spark waits there
 * by a clock, which is a parameter of its StreamingQueryManager. Compiled by trigger_clocks.py,
 * with Spark's Janino, which has no lambdas and ignores type parameters.
 */
public class TriggerClocks {
    /** Longer than any batch: Spark warns of batches that take longer. Our clock ignores it. */
    private static final String INTERVAL = "1 day";
    /** An idle trigger ends with this pause, which cannot be cut short. Our clock waits instead. */
    private static final String PAUSE = "spark.sql.streaming.pollingDelay";

    private final long sleepMsMax;
    /** By the name of the query, which holds its clock: with the query, the clock goes. */
    private final Map clocks = new ConcurrentHashMap();

    /** `sleepMsMax`: how long a query sleeps if nothing wakes it. */
    public TriggerClocks(Integer sleepMsMax) {
        this.sleepMsMax = sleepMsMax.longValue();
    }

    /** As DataStreamWriter.foreachBatch(batches).start(). Wakes of `name` count from now on. */
    public StreamingQuery start(
        String name, Dataset plan, String outputMode, String checkpoint,
        PythonForeachBatchFunction batches
    ) throws Exception {
        org.apache.spark.sql.classic.Dataset rows = (org.apache.spark.sql.classic.Dataset) plan;
        SparkSession session = rows.sparkSession();
        session.conf().set(PAUSE, "0ms");
        TriggerClock clock = new TriggerClock(sleepMsMax);
        clocks.put(name, new WeakReference(clock));
        return session.sessionState().streamingQueryManager().startQuery(
            Option.apply(name), Option.empty(), Option.apply(checkpoint), rows,
            scala.collection.immutable.Map$.MODULE$.empty(),
            new ForeachBatchSink(new Batches(clock, batches), rows.exprEnc()),
            outputMode.equals("append") ? OutputMode.Append() : OutputMode.Update(),
            false, true, Trigger.ProcessingTime(INTERVAL), clock, Option.empty(), Option.empty());
    }

    /** Wake queries, whose names are separated by line feeds: each has a trigger that begins after
     *  this call. */
    public void wake(String names) {
        String[] each = names.split("\n");
        for (int i = 0; i < each.length; i++) {
            TriggerClock clock = clockOf(clocks.get(each[i]));
            if (clock != null) {
                clock.wake();
            }
        }
    }

    /** The names of the queries that sleep now, separated by line feeds. */
    public String asleep() {
        StringBuilder names = new StringBuilder();
        for (Iterator all = clocks.entrySet().iterator(); all.hasNext();) {
            Map.Entry each = (Map.Entry) all.next();
            TriggerClock clock = clockOf(each.getValue());
            if (clock == null) {
                all.remove();
            } else if (clock.isAsleep()) {
                names.append((String) each.getKey()).append('\n');
            }
        }
        return names.toString();
    }

    private static TriggerClock clockOf(Object reference) {
        return reference == null ? null : (TriggerClock) ((WeakReference) reference).get();
    }
}

/** The clock of one query. `waitTillTime` is called by its thread, between two triggers. */
class TriggerClock implements Clock {
    private final long sleepMsMax;
    private boolean isWoken = false;
    private boolean isAsleep = false;

    TriggerClock(long sleepMsMax) {
        this.sleepMsMax = sleepMsMax;
    }

    /** Let the next wait end at once, or the one that goes on. */
    synchronized void wake() {
        isWoken = true;
        notifyAll();
    }

    synchronized boolean isAsleep() {
        return isAsleep;
    }

    public long getTimeMillis() {
        return System.currentTimeMillis();
    }

    public long nanoTime() {
        return System.nanoTime();
    }

    public synchronized long waitTillTime(long ignored) {
        long endNs = System.nanoTime() + sleepMsMax * 1000000L;
        isAsleep = true;
        try {
            long leftNs = endNs - System.nanoTime();
            while (!isWoken && leftNs > 0) {
                wait(leftNs / 1000000L + 1);
                leftNs = endNs - System.nanoTime();
            }
        } catch (InterruptedException stopped) {
            Platform.throwException(stopped);  // as Spark's own clock: that is how a query is stopped
        } finally {
            isAsleep = false;
            isWoken = false;
        }
        return getTimeMillis();
    }
}

/** What a batch calls. A trigger that ran a batch is followed by another one at once: there may be
 *  more to read, and only a batch can make Spark run one without data. */
class Batches extends AbstractFunction2 {
    private final TriggerClock clock;
    private final PythonForeachBatchFunction batches;

    Batches(TriggerClock clock, PythonForeachBatchFunction batches) {
        this.clock = clock;
        this.batches = batches;
    }

    public Object apply(Object rows, Object batch) {
        clock.wake();
        batches.call((Dataset) rows, ((Long) batch).longValue());
        return BoxedUnit.UNIT;
    }
}
