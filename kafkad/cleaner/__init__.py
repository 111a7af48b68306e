"""Log compaction: which log is next, the process that compacts it, and the algorithm."""
