"""Brokers that have left the cluster, and when: what one broker heard of it from the controller since its own start."""

from __future__ import annotations

from collections.abc import Collection


class AbsentBrokers:
    def __init__(self) -> None:
        self.since_ms: dict[int, int] = {}

    def observe(self, before: Collection[int], now: Collection[int], now_ms: int) -> None:
        """The live brokers before and after an UpdateMetadata."""
        for broker in before:
            if broker not in now:
                self.since_ms[broker] = now_ms
        for broker in now:
            self.since_ms.pop(broker, None)

    @property
    def text(self) -> str:
        """`2@1764000000000,3@1764000000500`: ids, and milliseconds since 1970."""
        return ",".join(f"{broker}@{since_ms}" for broker, since_ms in sorted(self.since_ms.items()))
