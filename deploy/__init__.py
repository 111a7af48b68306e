"""What carries kafkad to machines: the Debian package, man pages, and what watches it."""
