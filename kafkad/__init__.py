"""kafkad: a broker that speaks Kafka's protocol and keeps Kafka 3.9's files, without a JVM."""

from time import monotonic

__version__ = "0.1.0"

STARTED = monotonic()
"""The start of this process, before its imports: for those who wait for it, they are part of the start."""
