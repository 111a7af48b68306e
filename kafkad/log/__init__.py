"""The storage engine: Kafka 3.9's files. Synchronous; the caller chooses the thread for what may wait for a disk."""
