"""Consumer groups: their members, generations and committed offsets, over the records of `__consumer_offsets`."""
