// A listener with TLS and logins: a client writes records to it and reads them back, or says why it cannot.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const longest = 10_000_000

// access is what the client is given. Without Trusted it does not use TLS; Identity is the file of its key and
// certificate.
type access struct {
	Bootstrap, Trusted, Identity, Mechanism, User, Password, Token string
}

func secured(ctx context.Context, given string, words []string) error {
	var told access
	if err := json.Unmarshal([]byte(given), &told); err != nil {
		return err
	}
	options, err := told.options()
	if err != nil {
		return err
	}
	if words[0] == "back" {
		return back(ctx, options, words[1])
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Ping(ctx)
}

func (told access) options() ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(told.Bootstrap), kgo.AllowAutoTopicCreation(), kgo.RequestRetries(3)}
	if told.Trusted != "" {
		config, err := told.tls()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if told.Mechanism != "" {
		options = append(options, kgo.SASL(told.login()))
	}
	return options, nil
}

func (told access) tls() (*tls.Config, error) {
	text, err := os.ReadFile(told.Trusted)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(text)
	if told.Identity != "" {
		pair, err := tls.LoadX509KeyPair(told.Identity, told.Identity)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (told access) login() sasl.Mechanism {
	switch told.Mechanism {
	case "PLAIN":
		return plain.Auth{User: told.User, Pass: told.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: told.User, Pass: told.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: told.User, Pass: told.Password}.AsSha512Mechanism()
	}
	return oauth.Auth{Token: told.Token}.AsMechanism()
}

// back writes each line of the input as a record, and each record that it reads then as a line.
func back(ctx context.Context, options []kgo.Opt, topic string) error {
	client, err := kgo.NewClient(append(options,
		kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchMaxBytes(longest),
		kgo.FetchMaxPartitionBytes(longest),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
	)...)
	if err != nil {
		return err
	}
	defer client.Close()
	lines, count := bufio.NewScanner(os.Stdin), 0
	lines.Buffer(nil, longest)
	for ; lines.Scan(); count++ {
		if err := client.ProduceSync(ctx, kgo.StringRecord(lines.Text())).FirstErr(); err != nil {
			return err
		}
	}
	for count > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Printf("%s\n", record.Value)
			count--
		})
	}
	return lines.Err()
}
