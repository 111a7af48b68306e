package kafkad.etl;

import java.io.Serializable;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;

/**
 * Tells the Avro values that bytes follow. It passes over a value and makes nothing of it.
 *
 * Spark compiles this itself, with Janino: generics and lambdas are therefore not used.
 */
public final class Rest {
    public UserDefinedFunction finder(String writer) {
        return functions.udf((UDF1) new Finder(writer), DataTypes.BooleanType);
    }

    public static final class Finder implements UDF1, Serializable {
        private final String writer;
        private transient Schema schema;
        private transient BinaryDecoder decoder;

        Finder(String writer) {
            this.writer = writer;
        }

        public Object call(Object value) {
            if (value == null) {
                return Boolean.FALSE;
            }
            if (schema == null) {
                schema = new Schema.Parser().setValidateDefaults(false).parse(writer);
            }
            try {
                decoder = DecoderFactory.get().binaryDecoder((byte[]) value, decoder);
                GenericDatumReader.skip(schema, decoder);
                return Boolean.valueOf(!decoder.isEnd());
            } catch (Exception error) { // it is no such value, as from_avro says too
                return Boolean.FALSE;
            }
        }
    }
}
