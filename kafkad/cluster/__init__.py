"""What this broker knows of the cluster: metadata, overridden settings, finalized features, producer ids."""
