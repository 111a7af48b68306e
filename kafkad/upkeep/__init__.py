"""What a broker does by the clock: flushing, retention, checkpoints, removals, moves between log directories."""
