/*
 * Prints Kafka's own murmur2 for many byte strings, as JSON: [[hex, hash, partition of 4, of 7], ...].
 *
 * Made tests/unit/data/encoding/golden_murmur2.json:
 *   java -jar .venv/lib/python3.11/site-packages/pyspark/jars/ivy-*.jar \
 *     -dependency org.apache.kafka kafka-clients 3.9.2 -confs default -types jar \
 *     -retrieve '/tmp/kc/[artifact]-[revision].[ext]'
 *   java -cp '/tmp/kc/*' tools/golden/Murmur2Golden.java > tests/unit/data/encoding/golden_murmur2.json
 */

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;
import org.apache.kafka.common.utils.Utils;

public class Murmur2Golden {
    public static void main(String[] args) {
        String entries = inputs().stream().map(Murmur2Golden::entry).collect(Collectors.joining(",\n    "));
        System.out.println("{\n  \"made_by\": \"tools/golden/Murmur2Golden.java, kafka-clients 3.9.2\",");
        System.out.println("  \"columns\": [\"bytes in hex\", \"murmur2\", \"partition of 4\", \"partition of 7\"],");
        System.out.println("  \"values\": [\n    " + entries + "\n  ]\n}");
    }

    private static List<byte[]> inputs() {
        List<byte[]> inputs = new ArrayList<>();
        for (String text : List.of("", "a", "ab", "abc", "abcd", "21", "foobar", "N12345", "Zürich", "日本語",
                "a-little-bit-long-string", "a-little-bit-longer-string",
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", "\u0000", "\u0000\u0000\u0000\u0000")) {
            inputs.add(text.getBytes(StandardCharsets.UTF_8));
        }
        for (int number : new int[] {0, 1, -1, 42, Integer.MAX_VALUE, Integer.MIN_VALUE}) {
            inputs.add(ByteBuffer.allocate(4).putInt(number).array());
            inputs.add(ByteBuffer.allocate(8).putLong(number).array());
            inputs.add(ByteBuffer.allocate(8).putDouble(number).array());
        }
        Random random = new Random(20130101);
        for (int length = 0; length <= 40; length++) {
            for (int each = 0; each < 6; each++) {
                byte[] bytes = new byte[length];
                random.nextBytes(bytes);
                inputs.add(bytes);
            }
        }
        byte[] longKey = new byte[1000];
        random.nextBytes(longKey);
        inputs.add(longKey);
        return inputs;
    }

    private static String entry(byte[] bytes) {
        int hash = Utils.murmur2(bytes);
        return String.format("[\"%s\", %d, %d, %d]", HexFormat.of().formatHex(bytes), hash,
                Utils.toPositive(hash) % 4, Utils.toPositive(hash) % 7);
    }
}
