"""Jobs for tests, without a file: what `loading` makes of one."""

from __future__ import annotations

from typing import Any

import msgspec

from kafkad_etl.job import Job


def job(bootstrap: str = "", **blocks: Any) -> Job:
    """Reads the topic orders into nothing, unless `blocks` say otherwise."""
    document: dict[str, Any] = {
        "version": 1,
        "name": "orders-to-lake",
        "source": {"topics": ["orders"]},
        "sink": {"type": "none"},
    }
    if bootstrap:
        document["kafka"] = {"bootstrap": [bootstrap]}
    return msgspec.convert(document | blocks, Job)
