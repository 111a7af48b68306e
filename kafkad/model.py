"""Frozen values that every floor may hold: who, where, and in which state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import Final, NamedTuple

NO_LEADER = -1
LEADER_DURING_DELETE = -2
ALL_TOPICS = 2
"""The type of an UpdateMetadata that names every topic there is: a full one, in Kafka's words (KIP-866)."""
NO_EPOCH = -1
OWN_SOFTWARE: Final = "kafkad"
"""What brokers call themselves to each other."""


class Asked(IntEnum):
    """How a replica is asked to lead: as one in sync; by an unclean election, with what it has; where all others have
    refused that, with what it has got again since it was gone; as the last one of all, with nothing."""

    NOT_SAID = -1
    """By Kafka's controllers."""
    IN_SYNC = 0
    UNCLEANLY = 1
    WITH_A_PART = 2
    AS_THE_LAST = 3


ASKED_BY_TURNS: Final = (Asked.UNCLEANLY, Asked.WITH_A_PART)
"""Who has refused these is asked once more in an unclean election; forgotten when the next one begins."""


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


class Default(Enum):
    """Stands where a name would: for all that have no settings of their own."""

    DEFAULT = auto()


DEFAULT: Final = Default.DEFAULT
Name = str | Default


class Entity(NamedTuple):
    """A user, a client id, both, or an address that connects: what quotas and credentials are set for."""

    user: Name | None = None
    client: Name | None = None
    ip: Name | None = None
