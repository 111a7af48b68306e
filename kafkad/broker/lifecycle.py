"""The state of a broker between start and stop, for /health, /ready and its metric."""

from __future__ import annotations

from enum import IntEnum

from kafkad.net.http import Condition


class BrokerState(IntEnum):
    """Kafka's numbers."""

    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    SHUTTING_DOWN = 7


class Lifecycle:
    """`doing` says in words what the broker is busy with; empty while it runs."""

    def __init__(self) -> None:
        self.state = BrokerState.STARTING
        self.doing = "starting"

    def enter(self, state: BrokerState, doing: str = "") -> None:
        self.state = state
        self.doing = doing

    def health(self, in_full: bool) -> Condition:
        """A broker that loads its logs is healthy, however long that takes, so that no liveness probe kills it."""
        return Condition(True, self._told(in_full))

    def ready(self, in_full: bool) -> Condition:
        return Condition(self.state is BrokerState.RUNNING, self._told(in_full))

    def _told(self, in_full: bool) -> str:
        if self.state is BrokerState.RECOVERY and not in_full:
            return "loading logs"
        return self.doing or "ok"
