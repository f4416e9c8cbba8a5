package standpipe;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.api.java.UDF1;

/**
 * Rows as Avro's bytes, behind the id of their schema. How each value is written says a program
 * (sql/schemas/avro_write_program.py, to_text); the same in Python: data/encoding/avro_writing.py.
 * Compiled by session_functions.py.
 */
public class AvroBytes implements UDF1 {
    private final int schemaId;
    private final String program;
    private final boolean wraps;
    private transient Step step;

    /** wraps: a row is a record; else its only value is written. */
    public AvroBytes(int schemaId, String program, boolean wraps) {
        this.schemaId = schemaId;
        this.program = program;
        this.wraps = wraps;
    }

    /** The bytes of a row, whose values are as in the topic; null if the schema cannot have it. */
    public Object call(Object row) throws IOException {
        if (row == null) {
            return null;
        }
        if (step == null) {
            step = new Step(new ObjectMapper().readTree(program));
        }
        ByteArrayOutputStream made = new ByteArrayOutputStream();
        made.write(0);
        for (int shift = 24; shift >= 0; shift -= 8) {
            made.write(schemaId >> shift);
        }
        try {
            step.write(wraps ? row : ((Row) row).get(0), made);
        } catch (Unwritable error) {
            return null;
        }
        return made.toByteArray();
    }

    /** A value that the schema cannot have. */
    private static class Unwritable extends RuntimeException {
        Unwritable() {
            super(null, null, false, false);
        }
    }

    private static class Step {
        private final String op;
        private final Step[] parts;
        private final int[] numbers;
        private final Map symbols = new HashMap();
        private final byte[] data;

        Step(JsonNode given) throws IOException {
            op = at(given, 0).textValue();
            parts = new Step[at(given, 2).size()];
            for (int each = 0; each < parts.length; each++) {
                parts[each] = new Step(at(at(given, 2), each));
            }
            numbers = new int[at(given, 3).size()];
            for (int each = 0; each < numbers.length; each++) {
                numbers[each] = at(at(given, 3), each).intValue();
            }
            for (int each = 0; each < at(given, 4).size(); each++) {
                symbols.put(at(at(given, 4), each).textValue(), Integer.valueOf(each));
            }
            data = at(given, 5).binaryValue();
        }

        /** Janino takes the method for one that returns a TreeNode. */
        private static JsonNode at(JsonNode array, int place) {
            return (JsonNode) array.get(place);
        }

        void write(Object value, ByteArrayOutputStream to) {
            if (op.equals("CONSTANT")) {
                to.write(data, 0, data.length);
            } else if (op.equals("OPTIONAL") && value == null && numbers[0] >= 0) {
                writeLong(numbers[0], to);
            } else if (op.equals("OPTIONAL")) {
                writeLong(numbers[1], to);
                parts[0].write(value, to);
            } else if (value == null) {
                throw new Unwritable();
            } else if (op.equals("RECORD")) {
                for (int each = 0; each < parts.length; each++) {
                    int place = numbers[each];
                    parts[each].write(place < 0 ? null : ((Row) value).get(place), to);
                }
            } else if (op.equals("ARRAY") || op.equals("ENTRIES") || op.equals("MAP")) {
                writeItems((scala.collection.Seq) value, to);
            } else if (op.equals("ENUM")) {
                Integer place = (Integer) symbols.get(value);
                if (place == null) {
                    throw new Unwritable();
                }
                writeLong(place.intValue(), to);
            } else if (op.equals("DECIMAL")) {
                writeDecimal((BigDecimal) value, to);
            } else {
                writePlain(value, to);
            }
        }

        /** Of a map: pairs in their order, which a map of Scala's would lose. */
        private void writeItems(scala.collection.Seq items, ByteArrayOutputStream to) {
            if (items.size() > 0) {
                writeLong(items.size(), to);
                scala.collection.Iterator each = items.iterator();
                while (each.hasNext()) {
                    Object item = each.next();
                    if (op.equals("MAP")) {
                        writeText((String) ((Row) item).get(0), to);
                        item = ((Row) item).get(1);
                    }
                    parts[0].write(item, to);
                }
            }
            to.write(0);
        }

        private void writePlain(Object value, ByteArrayOutputStream to) {
            if (op.equals("BOOLEAN")) {
                to.write(((Boolean) value).booleanValue() ? 1 : 0);
            } else if (op.equals("INT") || op.equals("LONG")) {
                writeLong(((Number) value).longValue(), to);
            } else if (op.equals("FLOAT")) {
                double exact = ((Number) value).doubleValue();
                float near = (float) exact;
                if (Float.isInfinite(near) && !Double.isInfinite(exact)) {
                    throw new Unwritable();
                }
                writeBits(Float.floatToIntBits(near), 4, to);
            } else if (op.equals("DOUBLE")) {
                writeBits(Double.doubleToLongBits(((Number) value).doubleValue()), 8, to);
            } else if (op.equals("STRING")) {
                writeText((String) value, to);
            } else if (op.equals("BYTES")) {
                writeSized((byte[]) value, to);
            } else if (op.equals("FIXED") && ((byte[]) value).length == numbers[0]) {
                to.write((byte[]) value, 0, numbers[0]);
            } else {
                throw new Unwritable();
            }
        }

        private void writeDecimal(BigDecimal value, ByteArrayOutputStream to) {
            int precision = numbers[0];
            int size = numbers[2];
            BigDecimal whole;
            try {
                whole = value.setScale(numbers[1]);
            } catch (ArithmeticException error) {
                throw new Unwritable();
            }
            byte[] digits = whole.unscaledValue().toByteArray();
            if (whole.precision() > precision || (size >= 0 && digits.length > size)) {
                throw new Unwritable();
            }
            if (size < 0) {
                writeSized(digits, to);
                return;
            }
            for (int each = digits.length; each < size; each++) {
                to.write(whole.signum() < 0 ? 0xFF : 0);
            }
            to.write(digits, 0, digits.length);
        }

        private static void writeText(String text, ByteArrayOutputStream to) {
            writeSized(text.getBytes(StandardCharsets.UTF_8), to);
        }

        private static void writeSized(byte[] bytes, ByteArrayOutputStream to) {
            writeLong(bytes.length, to);
            to.write(bytes, 0, bytes.length);
        }

        private static void writeBits(long bits, int bytes, ByteArrayOutputStream to) {
            for (int each = 0; each < bytes; each++) {
                to.write((int) (bits >>> (8 * each)));
            }
        }

        private static void writeLong(long number, ByteArrayOutputStream to) {
            long left = (number << 1) ^ (number >> 63);
            while ((left & ~0x7FL) != 0) {
                to.write((int) (left & 0x7F | 0x80));
                left >>>= 7;
            }
            to.write((int) left);
        }
    }
}
