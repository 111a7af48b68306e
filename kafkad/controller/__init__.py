"""The controller: one queue and one writer for the state of the cluster."""
