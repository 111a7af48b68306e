"""The transactional producer of the driver, in Java: rows go from Spark to Kafka without passing through Python.

Spark's own compiler compiles it; it knows neither generics nor lambdas.
"""

from __future__ import annotations

CLASS = "kafkad.etl.Publisher"
SOURCE = """
package kafkad.etl;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.spark.sql.Row;

public class Publisher {
    private KafkaProducer producer;
    private Admin admin;
    private String topic;
    private String name;

    public void open(Map settings, String topic, String name) {
        this.topic = topic;
        this.name = name;
        ClassLoader before = Thread.currentThread().getContextClassLoader();
        Thread.currentThread().setContextClassLoader(Publisher.class.getClassLoader());
        try {
            admin = AdminClient.create(settings);
            settings.put("transactional.id", name);
            producer = new KafkaProducer(settings, new ByteArraySerializer(), new ByteArraySerializer());
        } finally {
            Thread.currentThread().setContextClassLoader(before);
        }
        producer.initTransactions();
    }

    public String find() throws Exception {
        ListConsumerGroupOffsetsOptions stable = new ListConsumerGroupOffsetsOptions().requireStable(true);
        Map found = (Map) admin.listConsumerGroupOffsets(name, stable).partitionsToOffsetAndMetadata().get();
        OffsetAndMetadata mark = (OffsetAndMetadata) found.get(place());
        return mark == null ? null : mark.offset() + " " + mark.metadata();
    }

    public void mark(long following) throws Throwable {
        publish(Collections.emptyList().iterator(), following - 1);
    }

    public long publish(Iterator rows, long batch) throws Throwable {
        long count = 0;
        producer.beginTransaction();
        try {
            while (rows.hasNext()) {
                Row row = (Row) rows.next();
                byte[] value = (byte[]) row.get(0);
                byte[] key = (byte[]) row.get(1);
                Integer partition = (Integer) row.get(2);
                producer.send(new ProducerRecord(topic, partition, key, value, headers(row)));
                count++;
            }
            end(batch + 1, count);
        } catch (Throwable failed) {
            try {
                producer.abortTransaction();
            } catch (Throwable alsoFailed) {
                failed.addSuppressed(alsoFailed);
            }
            throw failed;
        }
        return count;
    }

    public void close() {
        if (producer != null) {
            producer.close(Duration.ZERO);
        }
        if (admin != null) {
            admin.close(Duration.ZERO);
        }
    }

    private void end(long following, long rows) {
        Map mark = Collections.singletonMap(place(), new OffsetAndMetadata(following, String.valueOf(rows)));
        producer.sendOffsetsToTransaction(mark, new ConsumerGroupMetadata(name));
        producer.commitTransaction();
    }

    private TopicPartition place() {
        return new TopicPartition(topic, 0);
    }

    private static List headers(Row row) {
        if (row.isNullAt(3)) {
            return null;
        }
        List headers = new ArrayList();
        Iterator pairs = row.getList(3).iterator();
        while (pairs.hasNext()) {
            Row pair = (Row) pairs.next();
            headers.add(new RecordHeader(pair.getString(0), (byte[]) pair.get(1)));
        }
        return headers;
    }
}
"""
