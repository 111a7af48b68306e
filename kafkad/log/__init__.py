"""The storage engine: Kafka 3.9's files. Synchronous; the caller chooses the thread for whatever may wait for a disk."""
