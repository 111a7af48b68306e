"""Records in and out: produce, consume, copy, perf."""
