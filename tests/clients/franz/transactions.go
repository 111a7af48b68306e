// Transactions as a program with franz-go writes them: produced ones, and a loop of consume, transform and produce.
package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	transactions = 10
	abortedEvery = 3
)

// produce writes to two partitions in each transaction and aborts every third of them.
func produce(ctx context.Context, bootstrap, topic string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for number := range transactions {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		for partition := range int32(2) {
			value := fmt.Sprintf("%d-%d", number, partition)
			record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
			if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
				return err
			}
		}
		if err := client.EndTransaction(ctx, kgo.TransactionEndTry(number%abortedEvery != 0)); err != nil {
			return err
		}
	}
	return nil
}

// copyAll moves so many records from one topic to the other, each poll in a transaction with its offsets.
func copyAll(ctx context.Context, bootstrap, source, target string, count int) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID(target),
		kgo.DefaultProduceTopic(target),
		kgo.ConsumerGroup(target),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxPartitionBytes(1000),
		kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for moved := 0; moved < count; {
		fetches := session.PollRecords(ctx, 20)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		failed := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Value: record.Value}, failed.Promise())
		})
		committed, err := session.End(ctx, failed.Err() == nil)
		if err != nil {
			return err
		}
		if committed {
			moved += fetches.NumRecords()
		}
	}
	return nil
}
