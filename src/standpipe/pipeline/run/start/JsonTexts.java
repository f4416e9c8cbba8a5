package standpipe;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.api.java.UDF2;

/**
 * ksqlDB's functions of JSON texts, by the parser that ksqlDB uses: numbers keep their digits, keys
 * their order, and what follows the first value is not read. Spark's own differ in all of these.
 * The same in Python: sql/expressions/python/json_texts.py. Compiled by session_functions.py.
 */
public class JsonTexts implements UDF2 {
    /** Depth of arrays and objects; Python's parser has no more. */
    private static final int DEPTH_MAX = 200;
    private static final ObjectMapper MAPPER = mapper();

    private final String what;

    /** what: EXTRACT, IS_JSON, LENGTH, CONTAINS, ITEMS, KEYS, RECORDS or CONCAT. */
    public JsonTexts(String what) {
        this.what = what;
    }

    private static ObjectMapper mapper() {
        ObjectMapper made = new ObjectMapper();
        made.enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS);
        made.setNodeFactory(JsonNodeFactory.withExactBigDecimals(true));
        made.getFactory().setStreamReadConstraints(
            com.fasterxml.jackson.core.StreamReadConstraints.builder()
                .maxNestingDepth(DEPTH_MAX).maxNumberLength(1000).build());
        return made;
    }

    /** A text, and a path, a value to look for, or nothing; for CONCAT an array of texts. */
    public Object call(Object given, Object second) {
        if (what.equals("IS_JSON")) {
            return Boolean.valueOf(given != null && parsed((String) given) != null);
        }
        if (given == null) {
            return null;
        }
        if (what.equals("CONTAINS")) {
            return Boolean.valueOf(contains((String) given, second));
        }
        if (what.equals("CONCAT")) {
            return concat((scala.collection.Seq) given);
        }
        JsonNode node = parsed((String) given);
        if (what.equals("EXTRACT")) {
            return second == null ? null : extract(node, (String) second);
        }
        return node == null ? null : of(node);
    }

    private Object of(JsonNode node) {
        if (what.equals("LENGTH")) {
            return node.isArray() ? Integer.valueOf(node.size()) : null;
        }
        if (what.equals("ITEMS")) {
            return items(node);
        }
        if (!node.isObject()) {
            return null;
        }
        Map values = new LinkedHashMap();
        Iterator names = node.fieldNames();
        while (names.hasNext()) {
            Object name = names.next();
            values.put(name, text(node.get((String) name)));
        }
        return what.equals("KEYS") ? (Object) new ArrayList(values.keySet()) : values;
    }

    /** The first value of a text; null if there is none, or it is not valid. */
    private static JsonNode parsed(String text) {
        try {
            JsonNode node = MAPPER.readTree(text);
            return node == null || node.isMissingNode() ? null : node;
        } catch (IOException error) {
            return null;
        }
    }

    private static List items(JsonNode node) {
        if (!node.isArray()) {
            return null;
        }
        List made = new ArrayList();
        for (int each = 0; each < node.size(); each++) {
            made.add(node.get(each).toString());
        }
        return made;
    }

    private static String extract(JsonNode root, String path) {
        List tokens = tokens(path);
        if (tokens == null || root == null) {
            return null;
        }
        JsonNode node = root;
        for (Object token : tokens) {
            if (node.isArray()) {
                try {
                    node = (JsonNode) node.get(Integer.parseInt((String) token));
                } catch (NumberFormatException error) {
                    return null;
                }
            } else {
                node = (JsonNode) node.get((String) token);
            }
            if (node == null) {
                return null;
            }
        }
        return text(node);
    }

    /** A text as it is, all others as JSON. */
    private static String text(JsonNode node) {
        return node.isTextual() ? node.asText() : node.toString();
    }

    /** Names and indices of a path: $.name, $["name"], $[0]; null if it is none. */
    private static List tokens(String path) {
        List made = new ArrayList();
        int at = 1;
        if (!path.startsWith("$")) {
            return null;
        }
        while (at < path.length()) {
            char each = path.charAt(at);
            boolean isQuoted = path.startsWith("[\"", at);
            if (each != '.' && each != '[') {
                return null;
            }
            int start = at + (isQuoted ? 2 : 1);
            int end = start;
            StringBuilder name = new StringBuilder();
            while (end < path.length() && (isQuoted
                    ? path.charAt(end) != '"' : isOfName(path.charAt(end), each == '.'))) {
                if (isQuoted && path.charAt(end) == '\\') {
                    end++;
                    if (!path.startsWith("\"", end) && !path.startsWith("\\", end)) {
                        return null;
                    }
                }
                name.append(path.charAt(end));
                end++;
            }
            String closing = isQuoted ? "\"]" : each == '[' ? "]" : "";
            if (!path.startsWith(closing, end) || end == start && !isQuoted) {
                return null;
            }
            made.add(name.toString());
            at = end + closing.length();
        }
        return made;
    }

    private static boolean isOfName(char each, boolean isBehindPoint) {
        return Character.isLetterOrDigit(each) || each == '_'
            || isBehindPoint && (each == ':' || each == '@');
    }

    /** Reads only as far as the value is not found. */
    private static boolean contains(String text, Object wanted) {
        try {
            JsonParser parser = MAPPER.getFactory().createParser(text);
            if (parser.nextToken() != JsonToken.START_ARRAY) {
                return false;
            }
            JsonToken token = parser.nextToken();
            while (token != null && token != JsonToken.END_ARRAY) {
                parser.skipChildren();
                if (isSame(parser, token, wanted)) {
                    return true;
                }
                token = parser.nextToken();
            }
            return false;
        } catch (IOException error) {
            return false;
        }
    }

    private static boolean isSame(JsonParser parser, JsonToken token, Object wanted)
            throws IOException {
        if (wanted == null) {
            return token == JsonToken.VALUE_NULL;
        }
        if (token == JsonToken.VALUE_STRING) {
            return wanted instanceof String && wanted.equals(parser.getText());
        }
        if (token == JsonToken.VALUE_NUMBER_FLOAT) {
            return wanted instanceof Double
                && wanted.equals(Double.valueOf(parser.getText()));
        }
        if (token == JsonToken.VALUE_NUMBER_INT) {
            return wanted instanceof Long && parser.getLongValue() == ((Long) wanted).longValue()
                || wanted instanceof Integer
                    && parser.getIntValue() == ((Integer) wanted).intValue();
        }
        return token == JsonToken.VALUE_TRUE && Boolean.TRUE.equals(wanted)
            || token == JsonToken.VALUE_FALSE && Boolean.FALSE.equals(wanted);
    }

    private static String concat(scala.collection.Seq texts) {
        List nodes = new ArrayList();
        boolean areObjects = true;
        for (int each = 0; each < texts.length(); each++) {
            JsonNode node = texts.apply(each) == null ? null : parsed((String) texts.apply(each));
            if (node == null) {
                return null;
            }
            nodes.add(node);
            areObjects = areObjects && node.isObject();
        }
        JsonNode made = areObjects ? (JsonNode) MAPPER.createObjectNode() : MAPPER.createArrayNode();
        for (Object each : nodes) {
            if (areObjects) {
                ((ObjectNode) made).setAll((ObjectNode) each);
            } else if (((JsonNode) each).isArray()) {
                ((ArrayNode) made).addAll((ArrayNode) each);
            } else {
                ((ArrayNode) made).add((JsonNode) each);
            }
        }
        try {
            return MAPPER.writer().with(JsonGenerator.Feature.WRITE_BIGDECIMAL_AS_PLAIN)
                .writeValueAsString(made);
        } catch (IOException error) {
            return null;
        }
    }
}
