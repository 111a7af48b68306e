"""This broker's share of the partitions: their role, ISR and high watermark, and who waits for them."""
