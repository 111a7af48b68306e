"""kafkad: a broker that speaks Kafka's protocol and keeps Kafka 3.9's files, without a JVM."""

from time import monotonic

__version__ = "0.1.0"

STARTED = monotonic()
"""When this process began to be kafkad: what it imports counts for those who wait for it."""
