"""Periodic work of a broker: flushing, retention, checkpoints, removals, moves between log directories."""
