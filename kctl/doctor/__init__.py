"""`kctl doctor`: facts (asked of the cluster), checks (pure), findings (printed)."""
