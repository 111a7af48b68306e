"""`kctl perf`: how fast a cluster takes and gives records."""

from __future__ import annotations

from kctl.command.noun import Noun

perf = Noun(
    "perf",
    {
        "produce": ("kctl.records.perf.produce:perf_produce", "Measure producer throughput and latency."),
        "consume": ("kctl.records.perf.consume:perf_consume", "Measure consumer throughput."),
        "latency": ("kctl.records.perf.latency:perf_latency", "Measure end-to-end latency from producer to consumer."),
    },
    help="Measure throughput and latency.",
)
