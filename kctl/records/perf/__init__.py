"""`kctl perf`: how fast a cluster takes and gives records."""

from __future__ import annotations

from kctl.command.noun import Noun

perf = Noun(
    "perf",
    {
        "produce": ("kctl.records.perf.produce:perf_produce", "Measure how fast records are taken."),
        "consume": ("kctl.records.perf.consume:perf_consume", "Measure how fast records are read."),
        "latency": ("kctl.records.perf.latency:perf_latency", "Measure the time from a producer to a consumer."),
    },
    help="Measure throughput and latency.",
)
