"""The replicas on this broker: role, in-sync replicas, high watermark, and who waits for them."""
