"""One kafkad on its own store, as a load looks at a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.broker import KafkadProcess

SECONDS = 60


class Alone(KafkadProcess):
    """`bootstrap` is its open listener."""

    ids = (1,)

    @property
    def brokers(self) -> dict[int, KafkadProcess]:
        return {1: self}

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"})

    def replicas(self, topic: str, partition: int) -> list[int]:
        return [1]

    def is_whole(self, topic: str, partitions: int) -> bool:
        return True

    def until(self, condition: Callable[[], bool], what: str, seconds: float = SECONDS) -> float:
        """Waits until something holds; returns how long that took."""
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() < begun + seconds, f"not within {seconds} s: {what}"
            time.sleep(0.01)
        return time.monotonic() - begun
