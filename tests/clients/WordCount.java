import java.io.FileReader;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Produced;

/** Counts the words of the topic `lines`, and writes each count to the topic `counts`. */
class WordCount {
    public static void main(String[] arguments) throws Exception {
        var settings = new Properties();
        try (var file = new FileReader(arguments[0])) {
            settings.load(file);
        }
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        var builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word)
                .count()
                .toStream()
                .mapValues(String::valueOf)
                .to("counts", Produced.with(Serdes.String(), Serdes.String()));
        new KafkaStreams(builder.build(), settings).start();
    }
}
