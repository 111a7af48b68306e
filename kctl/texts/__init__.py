"""Output for people and input from them: tables, JSON, YAML, times, sizes, progress."""
