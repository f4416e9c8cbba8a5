import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams restores a wiped RocksDB store from its changelog, and says how long that took.
 *
 * <p>Arguments: bootstrap servers, application id, store, an empty input topic, partitions, folder,
 * whether it is tuned. The changelog is the topic "application id-store-changelog", as Kafka Streams
 * names it. One line goes to standard output: records restored, seconds from the first partition's
 * start to the last one's end.
 *
 * <p>Tuned: polls of 10,000 records, and fetches large enough for them. Otherwise at its defaults.
 */
public final class RestorePeer {
    private static final class Keep extends ContextualProcessor<byte[], byte[], Void, Void> {
        @Override
        public void process(Record<byte[], byte[]> record) {
            // the input topic is empty: the store is only there to be restored
        }
    }

    private static final class Listener implements StateRestoreListener {
        private final CountDownLatch left;
        private long startedNs;
        private long endedNs;
        private long records;

        Listener(int partitions) {
            left = new CountDownLatch(partitions);
        }

        @Override
        public synchronized void onRestoreStart(
                TopicPartition of, String store, long start, long end) {
            if (startedNs == 0) {
                startedNs = System.nanoTime();
            }
        }

        @Override
        public void onBatchRestored(TopicPartition of, String store, long end, long count) {
            // only the total counts
        }

        @Override
        public synchronized void onRestoreEnd(TopicPartition of, String store, long total) {
            records += total;
            endedNs = System.nanoTime();
            left.countDown();
        }

        void awaitAll() throws InterruptedException {
            left.await();
        }

        synchronized String told() {
            return records + " " + (endedNs - startedNs) / 1e9;
        }
    }

    public static void main(String[] args) throws Exception {
        final String servers = args[0];
        final String application = args[1];
        final String store = args[2];
        final String input = args[3];
        final int partitions = Integer.parseInt(args[4]);
        final Path folder = Path.of(args[5]);
        final boolean isTuned = Boolean.parseBoolean(args[6]);

        final StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(
                Stores.keyValueStoreBuilder(
                        Stores.persistentKeyValueStore(store),
                        Serdes.ByteArray(),
                        Serdes.ByteArray()));
        builder.<byte[], byte[]>stream(input).process(Keep::new, store);

        final Properties properties = new Properties();
        properties.putAll(
                Map.of(
                        StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers,
                        StreamsConfig.APPLICATION_ID_CONFIG, application,
                        StreamsConfig.STATE_DIR_CONFIG, folder.toString(),
                        StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG,
                                Serdes.ByteArraySerde.class,
                        StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG,
                                Serdes.ByteArraySerde.class));
        if (isTuned) {
            properties.put(StreamsConfig.restoreConsumerPrefix("max.poll.records"), "10000");
            properties.put(StreamsConfig.restoreConsumerPrefix("fetch.max.bytes"), "104857600");
            properties.put(
                    StreamsConfig.restoreConsumerPrefix("max.partition.fetch.bytes"), "8388608");
        }
        final Listener listener = new Listener(partitions);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
            streams.setGlobalStateRestoreListener(listener);
            streams.start();
            listener.awaitAll();
            System.out.println(listener.told());
        }
    }
}
