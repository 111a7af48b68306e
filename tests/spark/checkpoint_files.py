"""Checkpoints as Spark 4.0.0 writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

_CONF = {"spark.sql.shuffle.partitions": "1", "spark.sql.streaming.multipleWatermarkPolicy": "min"}

Ends = Mapping[str, Mapping[int, int]]


def spark_checkpoint(
    directory: Path,
    ends: Sequence[Ends],
    *,
    start: Ends | None = None,
    committed: int | None = None,
    watermark_ms: int = 0,
) -> None:
    """Batch N read up to `ends[N]`; those below `committed` (all by default) are committed."""
    for folder in ("offsets", "commits", "sources/0"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    (directory / "metadata").write_text('{"id":"8aa52cd6-6a6b-4db2-97c8-45f10fb719df"}')
    if start is not None:
        (directory / "sources/0/0").write_text(f"\0v1\n{_json(start)}")
    for number, end in enumerate(ends):
        facts = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": 1795302236271, "conf": _CONF}
        (directory / f"offsets/{number}").write_text(f"v1\n{json.dumps(facts)}\n{_json(end)}")
        (directory / f"offsets/.{number}.crc").write_bytes(b"crc\0")
    for number in range(len(ends) if committed is None else committed):
        (directory / f"commits/{number}").write_text(f'v1\n{{"nextBatchWatermarkMs":{watermark_ms}}}')


def _json(offsets: Ends) -> str:
    return json.dumps({topic: {str(p): at for p, at in found.items()} for topic, found in offsets.items()})
