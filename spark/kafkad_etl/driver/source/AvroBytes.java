package kafkad.etl;

import java.io.Serializable;
import java.util.List;
import org.apache.avro.Schema;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;

/**
 * Tells the bytes that are one Avro value and nothing else. It passes over them and makes nothing of them.
 *
 * Avro's own reader takes the memory that a length or a count asks for before it looks whether so many bytes follow: a
 * few bytes could ask for more than there is, which no JVM survives.
 *
 * Spark compiles this itself, with Janino: generics and lambdas are therefore not used.
 */
public final class AvroBytes {
    /** How many items of arrays a value may have that take no bytes, as nulls do. */
    private static final int MOST_EMPTY = 100000;
    /** How many parts of a value may be within one another, as records that have themselves are: so that it does not
     * depend on what Java has compiled already whether a stack is large enough. */
    private static final int MOST_DEEP = 1000;

    public UserDefinedFunction judge(String writer) {
        return functions.udf((UDF1) new Judge(writer), DataTypes.BooleanType);
    }

    public static final class Judge implements UDF1, Serializable {
        private final String writer;
        private transient Schema schema;

        Judge(String writer) {
            this.writer = writer;
        }

        public Object call(Object value) {
            if (value == null) {
                return Boolean.FALSE;
            }
            Walk walk = new Walk((byte[]) value);
            try {
                if (schema == null) {
                    schema = new Schema.Parser().setValidateDefaults(false).parse(writer);
                }
                walk.pass(schema);
                return Boolean.valueOf(walk.isAtEnd());
            } catch (IndexOutOfBoundsException error) { // a part lies beyond the bytes, or beyond a union
                return Boolean.FALSE;
            } catch (StackOverflowError error) { // of a thread with less than Java's usual stack
                return Boolean.FALSE;
            }
        }
    }

    /** A walk over bytes, from one part of a value to the next. */
    static final class Walk {
        private final byte[] bytes;
        private int at = 0;
        private int empty = 0;
        private int deep = 0;

        Walk(byte[] bytes) {
            this.bytes = bytes;
        }

        boolean isAtEnd() {
            return at == bytes.length;
        }

        /** Goes on to the end of a value that begins here, or throws an IndexOutOfBoundsException. */
        void pass(Schema schema) {
            need(++deep <= MOST_DEEP);
            Schema.Type type = schema.getType();
            if (type == Schema.Type.RECORD) {
                List fields = schema.getFields();
                for (int i = 0; i < fields.size(); i++) {
                    pass(((Schema.Field) fields.get(i)).schema());
                }
            } else if (type == Schema.Type.UNION) {
                int index = (int) varint(5);
                pass((Schema) schema.getTypes().get((index >>> 1) ^ -(index & 1)));
            } else if (type == Schema.Type.STRING || type == Schema.Type.BYTES) {
                over(number());
            } else if (type == Schema.Type.INT || type == Schema.Type.ENUM) {
                varint(5);
            } else if (type == Schema.Type.LONG) {
                varint(10);
            } else if (type == Schema.Type.DOUBLE) {
                over(8);
            } else if (type == Schema.Type.FLOAT) {
                over(4);
            } else if (type == Schema.Type.BOOLEAN) {
                over(1);
            } else if (type == Schema.Type.FIXED) {
                over(schema.getFixedSize());
            } else if (type == Schema.Type.ARRAY) {
                passItems(schema.getElementType(), false);
            } else if (type == Schema.Type.MAP) {
                passItems(schema.getValueType(), true);
            }
            deep--;
        }

        /** Blocks of items; one whose count is negative says its size, by which readers may skip it. */
        private void passItems(Schema schema, boolean haveKeys) {
            for (long count = number(); count != 0; count = number()) {
                boolean isSized = count < 0;
                long size = isSized ? number() : 0;
                int start = at;
                need(count != Long.MIN_VALUE);
                for (long left = Math.abs(count); left > 0; left--) {
                    passItem(schema, haveKeys);
                }
                need(!isSized || at - start == size);
            }
        }

        private void passItem(Schema schema, boolean hasKey) {
            int start = at;
            if (hasKey) {
                over(number());
            }
            pass(schema);
            need(at > start || ++empty <= MOST_EMPTY);
        }

        private long number() {
            long encoded = varint(10);
            return (encoded >>> 1) ^ -(encoded & 1);
        }

        private long varint(int most) {
            long found = 0;
            for (int i = 0; i < most; i++) {
                byte next = bytes[at++];
                found |= (next & 0x7FL) << (7 * i);
                if (next >= 0) {
                    return found;
                }
            }
            throw new IndexOutOfBoundsException();
        }

        private void over(long count) {
            need(count >= 0 && count <= bytes.length - at);
            at += (int) count;
        }

        private static void need(boolean holds) {
            if (!holds) {
                throw new IndexOutOfBoundsException();
            }
        }
    }
}
