import com.fasterxml.jackson.core.io.JsonStringEncoder;
import io.vertx.core.Vertx;
import io.vertx.core.VertxOptions;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.http.HttpClient;
import io.vertx.core.http.HttpClientOptions;
import io.vertx.core.http.HttpMethod;
import io.vertx.core.http.HttpServerOptions;
import io.vertx.ext.web.Router;
import io.vertx.ext.web.RoutingContext;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyQueryMetadata;
import org.apache.kafka.streams.LagInfo;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.HostInfo;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * Interactive queries of Kafka Streams behind Vert.x: a table in RocksDB, one row by its key.
 *
 * <p>Arguments: bootstrap servers, topic, its partitions, folder, port, whether the instance has
 * standbys. {@code GET /rows/KEY} answers {@code {"key":…,"row":…}}, or 404; {@code GET /lag} how
 * many records its stores lack, or 503 before it has all partitions.
 *
 * <p>What makes it fast is used: the source topic is the changelog, no record cache before the
 * store, the value is JSON and is passed on as it is, the store of the key's own partition is asked
 * (KIP-562) and kept, epoll, one event loop. What makes it available is used: standbys, reads of
 * them when the active is elsewhere, and a hop to the other instances (KIP-535).
 */
public final class LookupPeer {
    private static final String STORE = "rows";
    private static final StringSerializer KEYS = new StringSerializer();
    private static final byte[] KEY = "{\"key\":\"".getBytes(StandardCharsets.UTF_8);
    private static final byte[] ROW = "\",\"row\":".getBytes(StandardCharsets.UTF_8);

    private final HostInfo self;
    private final KafkaStreams streams;
    private final List<ReadOnlyKeyValueStore<String, byte[]>> stores = new ArrayList<>();
    private final int partitions;
    private final HttpClient others;

    private LookupPeer(Vertx vertx, KafkaStreams streams, HostInfo self, int partitions) {
        this.self = self;
        this.streams = streams;
        this.partitions = partitions;
        for (int partition = 0; partition < partitions; partition++) {
            stores.add(null);
        }
        others = vertx.createHttpClient(new HttpClientOptions().setConnectTimeout(1000));
    }

    private void lookUp(RoutingContext context) {
        final String key = context.pathParam("key");
        final KeyQueryMetadata found = streams.queryMetadataForKey(STORE, key, KEYS);
        if (found == null || found.equals(KeyQueryMetadata.NOT_AVAILABLE)) {
            context.response().setStatusCode(503).end();
        } else if (found.activeHost().equals(self) || found.standbyHosts().contains(self)) {
            answer(context, key, found.partition());
        } else {
            final List<HostInfo> hosts = new ArrayList<>();
            hosts.add(found.activeHost());
            hosts.addAll(found.standbyHosts());
            ask(context, hosts);
        }
    }

    private void answer(RoutingContext context, String key, int partition) {
        final byte[] row;
        try {
            row = store(partition).get(key);
        } catch (InvalidStateStoreException moved) {
            stores.set(partition, null);
            context.response().setStatusCode(503).end();
            return;
        }
        if (row == null) {
            context.response().setStatusCode(404).end();
            return;
        }
        final byte[] quoted = JsonStringEncoder.getInstance().quoteAsUTF8(key);
        final int length = KEY.length + quoted.length + ROW.length + row.length + 1;
        context.response()
                .putHeader("content-type", "application/json")
                .end(
                        Buffer.buffer(length)
                                .appendBytes(KEY)
                                .appendBytes(quoted)
                                .appendBytes(ROW)
                                .appendBytes(row)
                                .appendByte((byte) '}'));
    }

    private ReadOnlyKeyValueStore<String, byte[]> store(int partition) {
        ReadOnlyKeyValueStore<String, byte[]> store = stores.get(partition);
        if (store == null) {
            store =
                    streams.store(
                            StoreQueryParameters.fromNameAndType(
                                            STORE,
                                            QueryableStoreTypes.<String, byte[]>keyValueStore())
                                    .withPartition(partition)
                                    .enableStaleStores());
            stores.set(partition, store);
        }
        return store;
    }

    /** Asks one host after another until one answers. */
    private void ask(RoutingContext context, List<HostInfo> hosts) {
        if (hosts.isEmpty()) {
            context.response().setStatusCode(503).end();
            return;
        }
        final HostInfo host = hosts.remove(0);
        others.request(HttpMethod.GET, host.port(), host.host(), context.request().uri())
                .compose(request -> request.send())
                .compose(
                        answer ->
                                answer.body()
                                        .compose(
                                                body ->
                                                        context.response()
                                                                .setStatusCode(answer.statusCode())
                                                                .end(body)))
                .onFailure(failure -> ask(context, hosts));
    }

    private void lag(RoutingContext context) {
        final Map<Integer, LagInfo> lags =
                streams.allLocalStorePartitionLags().getOrDefault(STORE, Map.of());
        final boolean isWhole = lags.size() == partitions;
        final long lag = lags.values().stream().mapToLong(LagInfo::offsetLag).sum();
        context.response().setStatusCode(isWhole ? 200 : 503).end(Long.toString(lag));
    }

    public static void main(String[] args) throws Exception {
        final String topic = args[1];
        final int partitions = Integer.parseInt(args[2]);
        final int port = Integer.parseInt(args[4]);
        final HostInfo self = new HostInfo("127.0.0.1", port);

        final Properties properties = new Properties();
        properties.putAll(
                Map.of(
                        StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0],
                        StreamsConfig.APPLICATION_ID_CONFIG, "lookups",
                        StreamsConfig.STATE_DIR_CONFIG, args[3],
                        StreamsConfig.APPLICATION_SERVER_CONFIG, self.host() + ":" + self.port(),
                        StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.OPTIMIZE,
                        StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG,
                                Boolean.parseBoolean(args[5]) ? 1 : 0));
        final StreamsBuilder builder = new StreamsBuilder();
        builder.table(
                topic,
                Consumed.with(Serdes.String(), Serdes.ByteArray()),
                Materialized.<String, byte[], KeyValueStore<Bytes, byte[]>>as(STORE)
                        .withCachingDisabled());

        final Vertx vertx =
                Vertx.vertx(
                        new VertxOptions().setPreferNativeTransport(true).setEventLoopPoolSize(1));
        final KafkaStreams streams = new KafkaStreams(builder.build(properties), properties);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();

        final LookupPeer peer = new LookupPeer(vertx, streams, self, partitions);
        final Router router = Router.router(vertx);
        router.get("/rows/:key").handler(peer::lookUp);
        router.get("/lag").blockingHandler(peer::lag);
        vertx.createHttpServer(new HttpServerOptions().setTcpNoDelay(true))
                .requestHandler(router)
                .listen(port, self.host())
                .await();
    }
}
