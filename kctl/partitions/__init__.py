"""`kctl partitions`: where replicas are, and moving them."""
