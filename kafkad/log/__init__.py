"""The storage engine: Kafka 3.9's files. Synchronous; callers choose the thread for whatever may wait for a disk."""
