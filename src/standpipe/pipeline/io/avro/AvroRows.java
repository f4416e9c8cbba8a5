package standpipe;

import com.fasterxml.jackson.core.io.NumberOutput;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.catalyst.expressions.GenericRow;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Keys or values in Avro as structs of the columns' wire types and a field that is null: runs the
 * programs of data/encoding/avro_program.py as data/encoding/avro_reading.py does. A value that
 * cannot be read is null, and so is one under a schema without a program. Used by java_rows.py.
 */
public class AvroRows implements UDF1 {
    private static final int FRAME_BYTES = 5;
    private static final int LONG_BYTES_MAX = 10;

    /** JSON: the programs by the ids of their schemas, and the limits of a value. */
    private final String given;
    private transient JsonNode said;
    /** Of a task: schema's id -> Program. */
    private transient Map programs;

    public AvroRows(String given) {
        this.given = given;
    }

    /** The bytes of a key or a value with its frame. */
    public Object call(Object framed) throws Exception {
        if (framed == null) {
            return null;
        }
        byte[] data = (byte[]) framed;
        if (data.length < FRAME_BYTES || data[0] != 0) {
            return null;
        }
        int id = (data[1] & 0xFF) << 24 | (data[2] & 0xFF) << 16 | (data[3] & 0xFF) << 8
            | data[4] & 0xFF;
        Program program = program(id);
        if (program == null) {
            return null;
        }
        try {
            return new Reading(program, field(said, "limits"), data).row();
        } catch (RuntimeException error) {  // whatever it is, it is of this record
            return null;
        }
    }

    /** Null: there is none, and records under that schema are bad. */
    private Program program(int id) throws Exception {
        if (said == null) {
            said = (JsonNode) new ObjectMapper().readTree(given);
            programs = new HashMap();
        }
        Program made = (Program) programs.get(Integer.valueOf(id));
        if (made == null) {
            JsonNode found = field(field(said, "programs"), String.valueOf(id));
            if (found != null) {
                made = new Program(found);
                programs.put(Integer.valueOf(id), made);
            } else if (!field(said, "is_complete").asBoolean()) {
                throw new IllegalStateException("schema " + id + " has not been looked up");
            }
        }
        return made;
    }

    // the casts are Janino's: it takes the overload of the interface

    private static JsonNode field(JsonNode of, String name) {
        return (JsonNode) of.get(name);
    }

    private static JsonNode item(JsonNode of, int number) {
        return (JsonNode) of.get(number);
    }

    /** A value that cannot be read. It has no stack trace: there may be one for each record. */
    private static class BadValue extends RuntimeException {
        BadValue(String why) {
            super(why, null, false, false);
        }
    }

    private static class Program {
        final boolean isRow;
        final Step[] steps;

        Program(JsonNode said) {
            isRow = field(said, "is_row").asBoolean();
            JsonNode given = field(said, "steps");
            steps = new Step[given.size()];
            for (int each = 0; each < steps.length; each++) {
                steps[each] = new Step(item(given, each));
            }
        }
    }

    /** An AvroStep. */
    private static class Step {
        final String kind;
        final String form;
        final boolean isKept;
        final int size;
        final int scaleWritten;
        final int precision;
        final int scale;
        final UTF8String[] names;
        final int[] places;
        final int[] parts;

        Step(JsonNode said) {
            // interned, so that they are compared by identity
            kind = item(said, 0).asText().intern();
            form = item(said, 1).asText().intern();
            isKept = item(said, 2).asBoolean();
            size = item(said, 3).asInt();
            scaleWritten = item(item(said, 4), 0).asInt();
            precision = item(item(said, 4), 1).asInt();
            scale = item(item(said, 4), 2).asInt();
            names = new UTF8String[item(said, 5).size()];
            for (int each = 0; each < names.length; each++) {
                names[each] = UTF8String.fromString(item(item(said, 5), each).asText());
            }
            JsonNode pairs = item(said, 6);
            places = new int[pairs.size()];
            parts = new int[pairs.size()];
            for (int each = 0; each < parts.length; each++) {
                places[each] = item(item(pairs, each), 0).asInt();
                parts[each] = item(item(pairs, each), 1).asInt();
            }
        }
    }

    /** The reading of one value. What it makes is bounded before it is made. */
    private static class Reading {
        private final Program program;
        private final byte[] data;
        private int at = FRAME_BYTES;
        private long itemsLeft;
        private long fieldsLeft;
        private long textLeft;
        private int depthLeft;
        private final int decimalBytesMax;

        Reading(Program program, JsonNode limits, byte[] data) {
            this.program = program;
            this.data = data;
            int size = data.length - FRAME_BYTES;
            itemsLeft = size + field(limits, "free_items").asLong();
            fieldsLeft = size * field(limits, "fields_per_byte").asLong()
                + field(limits, "free_fields").asLong();
            textLeft = size * field(limits, "text_per_byte").asLong()
                + field(limits, "free_text_bytes").asLong();
            depthLeft = field(limits, "depth").asInt();
            decimalBytesMax = field(limits, "decimal_bytes").asInt();
        }

        /** The fields of all columns, and one that is null. */
        Object row() {
            Object[] made;
            if (program.isRow) {
                made = fields(program.steps[0], 1);
            } else {
                made = new Object[] {read(0), null};
            }
            if (at != data.length) {
                throw new BadValue("bytes are left over");
            }
            return new GenericRow(made);
        }

        private Object read(int number) {
            Step step = program.steps[number];
            String kind = step.kind;
            if (kind == "record") {
                Object[] made = fields(step, 0);
                return step.isKept ? new GenericRow(made) : null;
            }
            if (kind == "union" || kind == "branches") {
                return branch(step);
            }
            if (kind == "array") {
                return items(step);
            }
            if (kind == "map" || kind == "entries") {
                return entries(step);
            }
            return scalar(step);
        }

        /** More fields than the step makes: `more`, which are null. */
        private Object[] fields(Step step, int more) {
            deepen();
            Object[] made = step.isKept ? struct(step.names.length + more) : null;
            for (int each = 0; each < step.parts.length; each++) {
                Object value = read(step.parts[each]);
                if (step.places[each] >= 0) {
                    made[step.places[each]] = value;
                }
            }
            depthLeft++;
            return made;
        }

        private Object[] struct(int width) {
            fieldsLeft -= width;
            if (fieldsLeft < 0) {
                throw new BadValue("more fields than its bytes allow");
            }
            return new Object[width];
        }

        private Object branch(Step step) {
            deepen();
            long branch = number();
            if (branch < 0 || branch >= step.parts.length) {
                throw new BadValue("a union without that branch");
            }
            int part = step.parts[(int) branch];
            int place = step.places[(int) branch];
            Object value = read(part);
            depthLeft++;
            if (step.kind == "union") {
                return value;
            }
            if (program.steps[part].kind == "null") {
                return null;
            }
            Object[] made = struct(step.names.length);
            if (place >= 0) {
                made[place] = value;
            }
            return new GenericRow(made);
        }

        private Object items(Step step) {
            deepen();
            List made = step.isKept ? new ArrayList() : null;
            for (long left = blockItems(); left > 0; left = blockItems()) {
                for (; left > 0; left--) {
                    Object value = read(step.parts[0]);
                    if (step.isKept) {
                        made.add(value);
                    }
                }
            }
            depthLeft++;
            return made;
        }

        /** Of two entries with one key the later one counts. */
        private Object entries(Step step) {
            deepen();
            Map made = step.isKept ? new LinkedHashMap() : null;
            for (long left = blockItems(); left > 0; left = blockItems()) {
                for (; left > 0; left--) {
                    Object key;
                    Object value;
                    if (step.kind == "map") {
                        key = text();
                        value = read(step.parts[0]);
                    } else {
                        Object[] entry = fields(program.steps[step.parts[0]], 0);
                        key = entry[0];
                        value = entry[1];
                    }
                    if (key == null) {
                        throw new BadValue("a map with a null key");
                    }
                    if (step.isKept) {
                        made.put(key, value);
                    }
                }
            }
            depthLeft++;
            return made;
        }

        private Object scalar(Step step) {
            String kind = step.kind;
            if (kind == "null") {
                return null;
            }
            if (kind == "string") {
                return text();
            }
            if (kind == "int" || kind == "long") {
                long found = number();
                return formed(step, kind == "int" ? of32Bits(found) : found);
            }
            if (kind == "float" || kind == "double") {
                return formed(step, kind == "float" ? (double) Float.intBitsToFloat((int) bits(4))
                    : Double.longBitsToDouble(bits(8)));
            }
            if (kind == "boolean") {
                int found = data[take(1)];
                if (found != 0 && found != 1) {
                    throw new BadValue("no boolean");
                }
                Boolean value = Boolean.valueOf(found == 1);
                return step.form == "text" ? (Object) UTF8String.fromString(value.toString()) : value;
            }
            if (kind == "enum") {
                long found = number();
                if (found < 0 || found >= step.size) {
                    throw new BadValue("an enum without that symbol");
                }
                return step.isKept ? symbol(step.names[(int) found]) : null;
            }
            return bytes(step, kind == "fixed" ? step.size : number());
        }

        /** One byte may stand for a long text. */
        private UTF8String symbol(UTF8String made) {
            textLeft -= made.numBytes();
            if (textLeft < 0) {
                throw new BadValue("more text of its schema than its bytes allow");
            }
            return made;
        }

        private Object formed(Step step, long value) {
            String form = step.form;
            if (form == "text") {
                return UTF8String.fromString(Long.toString(value));
            }
            if (form == "millis") {
                return Long.valueOf(Math.floorDiv(value, 1000L));
            }
            if (form == "time") {
                return Integer.valueOf((int) of32Bits(Math.floorDiv(value, 1000L)));
            }
            if (step.kind == "long" || form == "long") {
                return Long.valueOf(value);
            }
            return Integer.valueOf((int) value);
        }

        /** Texts as Java 19 writes them, and without a negative zero. */
        private Object formed(Step step, double value) {
            if (step.form == "text") {
                return UTF8String.fromString(NumberOutput.toString(value + 0.0, true));
            }
            return Double.valueOf(value);
        }

        private Object bytes(Step step, long size) {
            int start = take(size);
            if (step.form == "decimal") {
                return decimal(step, start, (int) size);
            }
            return step.isKept ? java.util.Arrays.copyOfRange(data, start, at) : null;
        }

        private Object decimal(Step step, int start, int size) {
            if (size > decimalBytesMax) {
                throw new BadValue("a decimal with too many digits");
            }
            BigInteger digits = size == 0 ? BigInteger.ZERO
                : new BigInteger(java.util.Arrays.copyOfRange(data, start, start + size));
            BigDecimal made = new BigDecimal(digits, step.scaleWritten)
                .setScale(step.scale, RoundingMode.HALF_UP);
            if (made.precision() > step.precision) {
                throw new BadValue("a decimal that does not fit");
            }
            return made;
        }

        private UTF8String text() {
            long size = number();
            UTF8String made = UTF8String.fromBytes(data, take(size), (int) size);
            if (!made.isValid()) {
                throw new BadValue("no UTF-8");
            }
            return made;
        }

        /** Where the next bytes begin, which are now read. */
        private int take(long size) {
            if (size < 0 || size > data.length - at) {
                throw new BadValue("more bytes are announced than are left");
            }
            int start = at;
            at += (int) size;
            return start;
        }

        /** In zigzag form. */
        private long number() {
            long found = 0;
            for (int each = 0; each < LONG_BYTES_MAX; each++) {
                int next = data[take(1)] & 0xFF;
                if (each == LONG_BYTES_MAX - 1 && next > 1) {
                    break;
                }
                found |= (long) (next & 0x7F) << 7 * each;
                if (next < 0x80) {
                    return found >>> 1 ^ -(found & 1);
                }
            }
            throw new BadValue("a number of more than 64 bits");
        }

        private static long of32Bits(long value) {
            if (value != (int) value) {
                throw new BadValue("a number of more than 32 bits");
            }
            return value;
        }

        /** Little-endian. */
        private long bits(int size) {
            int start = take(size);
            long found = 0;
            for (int each = size - 1; each >= 0; each--) {
                found = found << 8 | data[start + each] & 0xFF;
            }
            return found;
        }

        /** How many items follow; 0: the array or map has ended. */
        private long blockItems() {
            long count = number();
            if (count < 0) {
                number();  // bytes of the block, for readers that pass over it
                count = -count;
            }
            if (count < 0 || count > itemsLeft) {  // -2^63 has no positive counterpart
                throw new BadValue("more items than the value has bytes");
            }
            itemsLeft -= count;
            return count;
        }

        private void deepen() {
            depthLeft--;
            if (depthLeft < 0) {
                throw new BadValue("nested too deep");
            }
        }
    }
}
