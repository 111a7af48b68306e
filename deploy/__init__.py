"""Packaging and monitoring: the Debian package, man pages, Grafana dashboard and Prometheus alerts."""
