import java.util.ArrayList;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions of one producer over all partitions, with a line for each. The first that fails is the last, with its error. */
class KeptProducer {
    public static void main(String[] arguments) throws Exception {
        var settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", "kept");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (int number = 0; ; number++) {
                producer.beginTransaction();
                var sent = new ArrayList<Future<RecordMetadata>>();
                for (int partition = 0; partition < Integer.parseInt(arguments[2]); partition++) {
                    sent.add(producer.send(new ProducerRecord<>(arguments[1], partition, null, "v" + number)));
                }
                for (var one : sent) {
                    one.get();
                }
                producer.commitTransaction();
                System.out.println("committed");
            }
        } catch (Exception error) {
            System.out.println(error);
        }
    }
}
