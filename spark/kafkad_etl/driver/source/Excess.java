package kafkad.etl;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Tells the texts of JSON that may have more than a schema allows: commas in decimals, fields that it lacks unless it is
 * open to them, or something that only a real parser can judge, such as escapes in names. All others certainly have not.
 *
 * It goes through the bytes once and makes nothing of them: whether they are JSON is for Spark to say.
 *
 * Spark compiles this itself, with Janino: generics and lambdas are therefore not used.
 */
public final class Excess {
    private static final int FOUND = -1;

    public UserDefinedFunction finder(String struct, boolean isStrict) {
        return functions.udf((UDF1) new Finder(Shape.of(DataType.fromJson(struct), isStrict)), DataTypes.BooleanType);
    }

    public static final class Finder implements UDF1, Serializable {
        private final Shape shape;

        Finder(Shape shape) {
            this.shape = shape;
        }

        public Object call(Object value) {
            if (value == null) {
                return Boolean.FALSE;
            }
            byte[] text = (byte[]) value;
            try {
                return Boolean.valueOf(shape.after(text, afterBlanks(text, 0)) == FOUND);
            } catch (ArrayIndexOutOfBoundsException error) { // the text ends in the middle
                return Boolean.TRUE;
            }
        }
    }

    /** What the schema has at one place of a text. */
    static final class Shape implements Serializable {
        private static final Shape UNKNOWN = new Shape(false, (char) 0, null, null, false);

        private final boolean isDecimal;
        /** What a struct, a map or an array begins with; 0 for other types. */
        private final byte opening;
        /** The names of a struct's fields; null for other types. */
        private final byte[][] names;
        /** What is in a struct's fields, or in all of an array or a map. */
        private final Shape[] parts;
        /** Whether a struct may have no other fields. */
        private final boolean isStrict;
        private transient Map places;

        private Shape(boolean isDecimal, char opening, byte[][] names, Shape[] parts, boolean isStrict) {
            this.isDecimal = isDecimal;
            this.opening = (byte) opening;
            this.names = names;
            this.parts = parts;
            this.isStrict = isStrict;
        }

        static Shape of(DataType type, boolean isStrict) {
            if (type instanceof StructType) {
                return ofStruct(((StructType) type).fields(), isStrict);
            }
            if (type instanceof ArrayType) {
                Shape[] parts = {of(((ArrayType) type).elementType(), isStrict)};
                return new Shape(false, '[', null, parts, isStrict);
            }
            if (type instanceof MapType) {
                Shape[] parts = {of(((MapType) type).valueType(), isStrict)};
                return new Shape(false, '{', null, parts, isStrict);
            }
            return new Shape(type instanceof DecimalType, (char) 0, null, null, isStrict);
        }

        private static Shape ofStruct(StructField[] fields, boolean isStrict) {
            List names = new ArrayList();
            List parts = new ArrayList();
            for (int i = 0; i < fields.length; i++) {
                if (fields[i].name().indexOf('\\') < 0) { // in a text it has an escape
                    names.add(fields[i].name().getBytes(StandardCharsets.UTF_8));
                    parts.add(of(fields[i].dataType(), isStrict));
                }
            }
            byte[][] listed = (byte[][]) names.toArray(new byte[0][]);
            return new Shape(false, '{', listed, (Shape[]) parts.toArray(new Shape[0]), isStrict);
        }

        /** The place after the value that begins at `at`, or FOUND. */
        int after(byte[] text, int at) {
            byte first = text[at];
            if (first == '"' || first == '\'') {
                int end = afterString(text, at);
                return isDecimal && (has(text, at, end, (byte) ',') || has(text, at, end, (byte) '\\')) ? FOUND : end;
            }
            if (first != '{' && first != '[') {
                return afterLiteral(text, at);
            }
            if (opening == 0) {
                return afterNested(text, at);
            }
            return first == opening ? afterParts(text, at) : FOUND;
        }

        private int afterParts(byte[] text, int at) {
            at = afterBlanks(text, at + 1);
            int place = -1;
            while (text[at] != '}' && text[at] != ']') {
                Shape part = names == null ? parts[0] : UNKNOWN;
                if (opening == '{') {
                    int end = afterString(text, at);
                    if (names != null) {
                        int found = place(text, at + 1, end - 1, place + 1);
                        if (found >= 0) {
                            place = found;
                            part = parts[found];
                        } else if (isStrict || has(text, at, end, (byte) '\\')) {
                            return FOUND;
                        }
                    }
                    at = afterBlanks(text, afterBlanks(text, end) + 1); // the colon
                }
                at = part.after(text, at);
                if (at == FOUND) {
                    return FOUND;
                }
                at = afterBlanks(text, at);
                if (text[at] == ',') {
                    at = afterBlanks(text, at + 1);
                }
            }
            return at + 1;
        }

        /** The place of a name among those of the schema, most likely `next`; negative if it is not among them. */
        private int place(byte[] text, int from, int to, int next) {
            if (next < names.length && isAt(text, from, to, names[next])) {
                return next;
            }
            if (places == null) {
                Map made = new HashMap();
                for (int i = 0; i < names.length; i++) {
                    made.put(ByteBuffer.wrap(names[i]), Integer.valueOf(i));
                }
                places = made;
            }
            Object found = places.get(ByteBuffer.wrap(text, from, to - from));
            return found == null ? -1 : ((Integer) found).intValue();
        }
    }

    private static boolean isAt(byte[] text, int from, int to, byte[] name) {
        if (to - from != name.length) {
            return false;
        }
        for (int i = 0; i < name.length; i++) {
            if (text[from + i] != name[i]) {
                return false;
            }
        }
        return true;
    }

    private static int afterBlanks(byte[] text, int at) {
        while (isBlank(text[at])) {
            at++;
        }
        return at;
    }

    private static boolean isBlank(byte each) {
        return each == ' ' || each == '\n' || each == '\r' || each == '\t';
    }

    /** After the string whose quotation mark is at `at`. */
    private static int afterString(byte[] text, int at) {
        byte mark = text[at++];
        while (text[at] != mark) {
            at += text[at] == '\\' ? 2 : 1;
        }
        return at + 1;
    }

    private static int afterLiteral(byte[] text, int at) {
        while (text[at] != ',' && text[at] != '}' && text[at] != ']' && !isBlank(text[at])) {
            at++;
        }
        return at;
    }

    /** After an object or an array of which the schema says nothing. */
    private static int afterNested(byte[] text, int at) {
        int depth = 0;
        do {
            byte each = text[at];
            if (each == '"' || each == '\'') {
                at = afterString(text, at);
            } else {
                depth += each == '{' || each == '[' ? 1 : each == '}' || each == ']' ? -1 : 0;
                at++;
            }
        } while (depth > 0);
        return at;
    }

    private static boolean has(byte[] text, int from, int to, byte wanted) {
        for (int i = from; i < to; i++) {
            if (text[i] == wanted) {
                return true;
            }
        }
        return false;
    }
}
