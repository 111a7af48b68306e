package kafkad.etl;

import com.google.protobuf.ByteString;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.protobuf.UninitializedMessageException;
import java.io.Serializable;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.DateTimeException;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;

/**
 * Protobuf messages as Spark's rows, and rows as messages. Which column a field becomes is said by `registry/protobuf.py`.
 *
 * Spark compiles this itself, with Janino: generics and lambdas are therefore not used.
 */
public final class Protobuf {
    private static final String TIMESTAMP = "google.protobuf.Timestamp";

    /** A message type, found anew in each executor. */
    abstract static class Of implements UDF1, Serializable {
        private final byte[] files;
        private final String name;
        private transient Descriptor found;

        Of(byte[] files, String name) {
            this.files = files;
            this.name = name;
        }

        Descriptor type() throws Exception {
            if (found == null) {
                found = find(files, name);
            }
            return found;
        }
    }

    /** Bytes of a message to a row, with null for bytes that are none, or that have what no column can hold. */
    public static final class Reader extends Of {
        public Reader(byte[] files, String name) {
            super(files, name);
        }

        public Object call(Object value) throws Exception {
            if (value == null) {
                return null;
            }
            try {
                return row(DynamicMessage.parseFrom(type(), (byte[]) value));
            } catch (InvalidProtocolBufferException error) {
                return null;
            } catch (DateTimeException error) {
                return null;
            }
        }
    }

    /** A row, whose times are microseconds, to the bytes of a message. Columns that are null are left out. */
    public static final class Writer extends Of {
        public Writer(byte[] files, String name) {
            super(files, name);
        }

        public Object call(Object value) throws Exception {
            if (value == null) {
                return null;
            }
            try {
                return message(type(), (Row) value).toByteArray();
            } catch (UninitializedMessageException error) {
                throw refused(type(), error.getMessage());
            }
        }
    }

    // Which of Spark's functions of this name is meant, the compiler finds out here; Py4J would guess.

    public UserDefinedFunction reader(byte[] files, String name, String struct) {
        return functions.udf((UDF1) new Reader(files, name), DataType.fromJson(struct));
    }

    public UserDefinedFunction writer(byte[] files, String name) {
        return functions.udf((UDF1) new Writer(files, name), DataTypes.BinaryType);
    }

    static Descriptor find(byte[] files, String name) throws Exception {
        FileDescriptorSet set = FileDescriptorSet.parseFrom(files);
        Map built = new HashMap();
        for (int i = 0; i < set.getFileCount(); i++) { // each after those that it imports
            FileDescriptorProto file = checked(set.getFile(i));
            FileDescriptor[] imported = new FileDescriptor[file.getDependencyCount()];
            for (int j = 0; j < imported.length; j++) {
                imported[j] = (FileDescriptor) built.get(file.getDependency(j));
            }
            built.put(file.getName(), FileDescriptor.buildFrom(file, imported));
        }
        for (Iterator it = built.values().iterator(); it.hasNext();) {
            FileDescriptor file = (FileDescriptor) it.next();
            String prefix = file.getPackage().isEmpty() ? "" : file.getPackage() + ".";
            if (name.startsWith(prefix)) {
                String[] parts = name.substring(prefix.length()).split("\\.");
                Descriptor type = file.findMessageTypeByName(parts[0]);
                for (int i = 1; type != null && i < parts.length; i++) {
                    type = type.findNestedTypeByName(parts[i]);
                }
                if (type != null) {
                    return type;
                }
            }
        }
        throw new IllegalArgumentException("the Protobuf schema has no message " + name);
    }

    /** The file with texts that have to be UTF-8: those of proto2 would be altered without a word. */
    static FileDescriptorProto checked(FileDescriptorProto file) {
        if (!file.getSyntax().isEmpty() && !file.getSyntax().equals("proto2")) {
            return file;
        }
        return file.toBuilder().setOptions(file.getOptions().toBuilder().setJavaStringCheckUtf8(true)).build();
    }

    // --- reading

    static Row row(Message message) {
        List fields = message.getDescriptorForType().getFields();
        Object[] values = new Object[fields.size()];
        for (int i = 0; i < values.length; i++) {
            values[i] = column(message, (FieldDescriptor) fields.get(i));
        }
        return RowFactory.create(values);
    }

    static Object column(Message message, FieldDescriptor field) {
        if (field.isMapField()) {
            Map entries = new LinkedHashMap();
            for (int i = 0; i < message.getRepeatedFieldCount(field); i++) {
                Message entry = (Message) message.getRepeatedField(field, i);
                FieldDescriptor key = entry.getDescriptorForType().findFieldByNumber(1);
                FieldDescriptor value = entry.getDescriptorForType().findFieldByNumber(2);
                if (entry.getUnknownFields().hasField(2)) {
                    continue; // a number that a closed enum has no name for
                }
                entries.put(value(key, entry.getField(key)), value(value, entry.getField(value)));
            }
            return entries;
        }
        if (field.isRepeated()) {
            List items = new ArrayList();
            for (int i = 0; i < message.getRepeatedFieldCount(field); i++) {
                items.add(value(field, message.getRepeatedField(field, i)));
            }
            return items;
        }
        if (field.hasPresence() && !message.hasField(field) && !field.hasDefaultValue()) {
            return null;
        }
        return value(field, message.getField(field));
    }

    static Object value(FieldDescriptor field, Object value) {
        if (value instanceof Message) {
            Message message = (Message) value;
            Descriptor type = message.getDescriptorForType();
            if (type.getFullName().equals(TIMESTAMP)) {
                return time((Long) message.getField(type.findFieldByNumber(1)),
                    (Integer) message.getField(type.findFieldByNumber(2)));
            }
            if (isWrapper(type)) {
                FieldDescriptor wrapped = type.findFieldByNumber(1);
                return value(wrapped, message.getField(wrapped));
            }
            return row(message);
        }
        if (value instanceof ByteString) {
            return ((ByteString) value).toByteArray();
        }
        if (value instanceof EnumValueDescriptor) {
            EnumValueDescriptor found = (EnumValueDescriptor) value;
            return isUnknown(found) ? String.valueOf(found.getNumber()) : found.getName();
        }
        if (value instanceof Integer && isUnsigned(field)) {
            return Long.valueOf(((Integer) value).longValue() & 0xFFFFFFFFL);
        }
        if (value instanceof Long && isUnsigned(field)) {
            return new BigDecimal(new BigInteger(Long.toUnsignedString(((Long) value).longValue())));
        }
        return value;
    }

    /** True for a number that the enum has no name for: its writer's schema may be a newer one. */
    static boolean isUnknown(EnumValueDescriptor value) {
        return value.getIndex() < 0;
    }

    /** A time that is one of Spark's, which are microseconds; else there is a DateTimeException. */
    static Instant time(Long seconds, Integer nanos) {
        try {
            Instant time = Instant.ofEpochSecond(seconds.longValue(), nanos.longValue());
            DateTimeUtils.instantToMicros(time);
            return time;
        } catch (ArithmeticException error) {
            throw new DateTimeException(seconds + " seconds are beyond Spark's times", error);
        }
    }

    static boolean isUnsigned(FieldDescriptor field) {
        FieldDescriptor.Type type = field.getType();
        return type == FieldDescriptor.Type.UINT32 || type == FieldDescriptor.Type.FIXED32
            || type == FieldDescriptor.Type.UINT64 || type == FieldDescriptor.Type.FIXED64;
    }

    static boolean isWrapper(Descriptor type) {
        return type.getFile().getFullName().equals("google/protobuf/wrappers.proto");
    }

    // --- writing

    static Message message(Descriptor type, Row row) {
        DynamicMessage.Builder message = DynamicMessage.newBuilder(type);
        StructField[] columns = row.schema().fields();
        for (int i = 0; i < columns.length; i++) {
            if (!row.isNullAt(i)) {
                set(message, type.findFieldByName(columns[i].name()), row.get(i));
            }
        }
        return message.build();
    }

    static void set(DynamicMessage.Builder message, FieldDescriptor field, Object value) {
        if (field.isMapField()) {
            FieldDescriptor keys = field.getMessageType().findFieldByNumber(1);
            FieldDescriptor values = field.getMessageType().findFieldByNumber(2);
            scala.collection.Iterator entries = ((scala.collection.Iterable) value).iterator();
            while (entries.hasNext()) {
                scala.Tuple2 entry = (scala.Tuple2) entries.next();
                DynamicMessage.Builder one = DynamicMessage.newBuilder(field.getMessageType());
                one.setField(keys, written(keys, entry._1()));
                one.setField(values, written(values, entry._2()));
                message.addRepeatedField(field, one.build());
            }
        } else if (field.isRepeated()) {
            scala.collection.Iterator items = ((scala.collection.Iterable) value).iterator();
            while (items.hasNext()) {
                message.addRepeatedField(field, written(field, items.next()));
            }
        } else {
            message.setField(field, written(field, value));
        }
    }

    static Object written(FieldDescriptor field, Object value) {
        if (value == null) {
            throw refused(field.getContainingType(), field.getName() + " has a null inside, which Protobuf does not know");
        }
        FieldDescriptor.JavaType kind = field.getJavaType();
        if (kind == FieldDescriptor.JavaType.MESSAGE) {
            return messageOf(field.getMessageType(), value);
        }
        if (kind == FieldDescriptor.JavaType.ENUM) {
            return enumValue(field, (String) value);
        }
        if (kind == FieldDescriptor.JavaType.BYTE_STRING) {
            return ByteString.copyFrom((byte[]) value);
        }
        if (kind == FieldDescriptor.JavaType.INT || kind == FieldDescriptor.JavaType.LONG) {
            return number(field, kind == FieldDescriptor.JavaType.INT ? 32 : 64, value);
        }
        if (kind == FieldDescriptor.JavaType.DOUBLE) {
            return Double.valueOf(((Number) value).doubleValue());
        }
        return value;
    }

    /** The value of this name; or of this number, as those that have no name are read. */
    static EnumValueDescriptor enumValue(FieldDescriptor field, String text) {
        EnumValueDescriptor found = field.getEnumType().findValueByName(text);
        if (found != null) {
            return found;
        }
        try {
            found = field.getEnumType().findValueByNumberCreatingIfUnknown(Integer.parseInt(text));
        } catch (NumberFormatException error) { // it is no number either
        }
        if (found == null || isUnknown(found) && field.getEnumType().isClosed()) {
            throw refused(field.getContainingType(), field.getName() + ": its enum has no value " + text);
        }
        return found;
    }

    static Object messageOf(Descriptor type, Object value) {
        if (value instanceof Row) {
            return message(type, (Row) value);
        }
        DynamicMessage.Builder message = DynamicMessage.newBuilder(type);
        if (type.getFullName().equals(TIMESTAMP)) {
            Instant time = DateTimeUtils.microsToInstant(((Long) value).longValue());
            message.setField(type.findFieldByNumber(1), Long.valueOf(time.getEpochSecond()));
            message.setField(type.findFieldByNumber(2), Integer.valueOf(time.getNano()));
        } else {
            message.setField(type.findFieldByNumber(1), written(type.findFieldByNumber(1), value));
        }
        return message.build();
    }

    static Object number(FieldDescriptor field, int bits, Object value) {
        BigInteger number = value instanceof BigDecimal
            ? ((BigDecimal) value).toBigInteger() : BigInteger.valueOf(((Number) value).longValue());
        boolean fits = isUnsigned(field)
            ? number.signum() >= 0 && number.bitLength() <= bits : number.bitLength() < bits;
        if (!fits) {
            String type = field.getType().name().toLowerCase();
            throw refused(field.getContainingType(), field.getName() + ": " + number + " is no " + type);
        }
        return bits == 32 ? (Object) Integer.valueOf(number.intValue()) : (Object) Long.valueOf(number.longValue());
    }

    static IllegalArgumentException refused(Descriptor type, String why) {
        return new IllegalArgumentException("a row does not fit the Protobuf message " + type.getFullName() + ": " + why);
    }
}
