// What the tests have done with franz-go.
//
// Usage: franz BOOTSTRAP TOPIC produce | copy SOURCE COUNT
//
//	franz secured ACCESS ping | back TOPIC
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

const patience = 60 * time.Second

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, words []string) error {
	if words[0] == "secured" {
		return secured(ctx, words[1], words[2:])
	}
	bootstrap, topic, what := words[0], words[1], words[2]
	if what == "produce" {
		return produce(ctx, bootstrap, topic)
	}
	count, err := strconv.Atoi(words[4])
	if err != nil {
		return err
	}
	return copyAll(ctx, bootstrap, words[3], topic, count)
}
