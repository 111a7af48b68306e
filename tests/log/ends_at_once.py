"""The module of a worker that has nothing to do."""
