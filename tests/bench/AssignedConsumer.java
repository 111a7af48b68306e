import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads partition 0 of a topic from its start until RECORDS have come, and prints the MB/s of the second half. */
public class AssignedConsumer {
    public static void main(String[] args) {
        long records = Long.parseLong(args[2]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            TopicPartition partition = new TopicPartition(args[1], 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long seen = 0;
            long bytes = 0;
            long begin = 0;
            while (seen < records) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    seen++;
                    if (begin != 0) {
                        bytes += record.value().length;
                    }
                }
                if (begin == 0 && seen > records / 2) {
                    begin = System.nanoTime();
                }
            }
            System.out.printf("%.2f%n", bytes / 1e6 / ((System.nanoTime() - begin) / 1e9));
        }
    }
}
