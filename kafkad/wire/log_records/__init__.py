"""Keys and values of the records in Kafka's internal topics: one file per kind of coordinator and protocol."""
