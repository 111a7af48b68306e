"""Requests to a group's state machine and the effects it decides on, as frozen values."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from kafkad.errors import ErrorCode
from kafkad.group.records import GroupWritten

NO_GENERATION = -1

Respond = Callable[[Any], object]
"""The one to be answered. A group keeps it and never calls it."""


class Moment(NamedTuple):
    """Deadlines are counted on a clock that never jumps; what goes into records is the time of the day."""

    ms: float
    wall_ms: int


class State(Enum):
    """The states of a group, by the names that Kafka gives them in its answers."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Join(NamedTuple):
    """`member_id` is empty for somebody new, who is to be called `new_id`; with `needs_id` only after it asked again
    under that id (KIP-394). `may_skip`: a leader that understands that there is nothing to assign (KIP-814)."""

    respond: Respond
    member_id: str
    new_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    needs_id: bool = False
    may_skip: bool = False
    reason: str | None = None

    @property
    def least_metadata(self) -> int:
        """The bytes that go into the group's record at least, whichever protocol is chosen."""
        return min((len(metadata) for _, metadata in self.protocols), default=0)


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to a join; only the leader hears of the members."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class Sync(NamedTuple):
    """`assignments` come from the leader; type and protocol from clients that check them (KIP-559)."""

    respond: Respond
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


class Synced(NamedTuple):
    """The answer to a sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Leaving(NamedTuple):
    """A member may also be removed by its instance id alone (KIP-345)."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class Answer(NamedTuple):
    respond: Respond
    answer: Joined | Synced


class Replaced(NamedTuple):
    """A static member came back under a new id: it is answered when that is written. What it was until then."""

    member_id: str
    was: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    leader_before: str | None
    may_skip: bool


class Write(NamedTuple):
    """A record to write; the group is to be told of its end by `written`."""

    record: GroupWritten
    replaced: Replaced | None = None


class Note(NamedTuple):
    """Something an operator may want to read."""

    text: str


Effect = Answer | Write | Note


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Description(NamedTuple):
    """A group as DescribeGroups returns it; metadata and assignments only when it is stable."""

    state: State
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()
