"""kafkad: a broker that speaks Kafka's protocol and keeps Kafka 3.9's files, without a JVM."""

__version__ = "0.1.0"
