"""kctl: the command line that operates kafkad and any other Kafka."""
