package standpipe;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.api.java.UDF3;

/**
 * Stream time as Kafka Streams counts it: the newest time of a partition's records up to this one,
 * in the order of their offsets. Each task has a copy of its own and reads each of its partitions in
 * order, so a batch is counted from its first record, and replayed alike. Compiled by
 * session_functions.py; what is late by it: sql/spark/stream_time.py.
 */
public class StreamTime implements UDF3 {
    /** Of a partition: {the offset of the last record, stream time there}. */
    private final Map newest = new HashMap();

    /** Partition, offset, and the record's time in ms; null if the record does not count. */
    public Object call(Object partition, Object offset, Object time) {
        long at = ((Long) offset).longValue();
        long[] known = (long[]) newest.get(partition);
        if (known == null || at < known[0]) {
            known = new long[] {at, Long.MIN_VALUE}; // the first record of a reading
            newest.put(partition, known);
        }
        known[0] = at;
        if (time != null) {
            known[1] = Math.max(known[1], ((Long) time).longValue());
        }
        return Long.valueOf(known[1]);
    }
}
