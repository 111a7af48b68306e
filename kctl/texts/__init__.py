"""What kctl prints and what it reads of people: tables, JSON, YAML, times, sizes, progress."""
