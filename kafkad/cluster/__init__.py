"""The cluster as this broker knows it: metadata, overridden settings, finalized features, producer ids."""
