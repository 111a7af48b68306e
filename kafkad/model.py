"""Frozen values that every floor may hold: who, where, and in which state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NO_LEADER = -1
LEADER_DURING_DELETE = -2
NO_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    listener: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = NO_EPOCH

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((e for e in self.endpoints if e.listener == listener), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """The state in `/brokers/topics/T/partitions/P/state`; `partition_epoch` is that znode's version."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int = 0
    recovering: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAssignment:
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedIsr:
    """A leader's request for another ISR: member → broker epoch, -1 where it does not know it."""

    members: Mapping[int, int]
    leader_epoch: int
    partition_epoch: int
    recovering: bool = False
