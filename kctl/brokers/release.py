"""The release of a broker, told by the APIs it serves: brokers do not say it themselves. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_PRODUCE, _FETCH, _LIST_OFFSETS, _METADATA = 0, 1, 2, 3
_SIGNS = (
    ("4.2", _LIST_OFFSETS, 11),
    ("4.1", _FETCH, 18),
    ("4.0", _METADATA, 13),
    ("3.9", _LIST_OFFSETS, 9),
    ("3.8", _PRODUCE, 11),
    ("3.7", _PRODUCE, 10),
    ("3.5", _FETCH, 15),
    ("3.1", _FETCH, 13),
)
"""The first version of an API that came with each release; newest first."""


def release(versions: Mapping[int, tuple[int, int]]) -> str:
    """`3.9`, or what it is older than. A broker that speaks Kafka's protocol counts as the Kafka that speaks so."""
    for name, key, version in _SIGNS:
        if versions.get(key, (0, -1))[1] >= version:
            return name
    return f"before {_SIGNS[-1][0]}"


def caps_min_isr(versions: Mapping[int, tuple[int, int]]) -> bool:
    """True if it never asks for more replicas in sync than a partition has: brokers since 3.7 (KIP-966)."""
    return versions.get(_PRODUCE, (0, -1))[1] >= 10
