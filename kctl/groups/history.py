"""A group's last records by its coordinator: `__consumer_offsets` has the time of each commit, and the members of the
last generation that came about, with what was assigned to them.

Whoever may not read that topic learns less, never something wrong. It is read from its end backwards, as far as
`RECORDS` go: a group that has written nothing for so long has no history here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkad.errors import ErrorCode
from kafkad.names import GROUPS_TOPIC, TopicPartition, home_partition
from kctl.errors import KctlError, failure
from kctl.groups.record_times import fetch_request
from kctl.groups.subscriptions import assigned_partitions
from kctl.reach.offsets import EARLIEST, LATEST, offsets_at

if TYPE_CHECKING:
    from kafkad.wire.records import Record
    from kctl.reach.session import Session

RECORDS = 50_000
_FIRST_STEP = 500
_GROWTH = 10
_BYTES = 4 << 20


class LastMember(NamedTuple):
    id: str
    instance: str | None
    client: str
    host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    assigned: tuple[TopicPartition, ...]


class LastGeneration(NamedTuple):
    generation: int
    protocol: str
    written_ms: int
    members: tuple[LastMember, ...]


class History(NamedTuple):
    commit_ms: dict[TopicPartition, int]
    """The time of each partition's last commit."""
    generation: LastGeneration | None
    problem: str = ""
    """The reason that nothing is here, unless it is that nothing was found."""


def read_history(session: Session, group: str, partitions: Iterable[TopicPartition]) -> History:
    """Until the time of a commit of each of these partitions is known, and the last generation."""
    return read_histories(session, {group: partitions})[group]


def read_histories(session: Session, wanted: Mapping[str, Iterable[TopicPartition]]) -> dict[str, History]:
    """The same of several groups: what holds the records of many is read once for all of them."""
    if not wanted:
        return {}
    at_home: dict[TopicPartition, list[str]] = {}
    try:
        for name, home in homes(session, wanted).items():
            at_home.setdefault(home, []).append(name)
        ends = bounds(session, at_home)
    except KctlError as error:
        return dict.fromkeys(wanted, History({}, None, error.with_code))
    histories: dict[str, History] = {}
    for home, names in at_home.items():
        found = {name.encode(): _Found(name, frozenset(wanted[name])) for name in names}
        try:
            _read_home(session, home, ends[home], found)
        except KctlError as error:
            histories |= dict.fromkeys(names, History({}, None, error.with_code))
        else:
            histories |= {one.group: History(one.commit_ms, one.generation) for one in found.values()}
    return histories


def _read_home(
    session: Session, home: TopicPartition, ends: tuple[int, int] | KctlError, found: Mapping[bytes, _Found]
) -> None:
    if isinstance(ends, KctlError):
        raise ends
    for begin, end in steps(*ends):
        waiting = {name: one for name, one in found.items() if not one.complete}
        if not waiting:
            break
        own: dict[bytes, list[Record]] = {name: [] for name in waiting}
        for record in records_between(session, home, begin, end):
            if (name := group_of(record)) in own:  # most are of other groups, and not worth decoding
                own[name].append(record)
        for name, one in waiting.items():
            one.read(own[name])


def group_of(record: Record) -> bytes:
    """The keys of all kinds begin with a version and the group."""
    key = record.key or b""
    return key[4 : 4 + int.from_bytes(key[2:4], "big")]


def steps(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Ranges of offsets from the end backwards, each larger than the one before."""
    size, end, least = _FIRST_STEP, last, max(first, last - RECORDS)
    while end > least:
        begin = max(end - size, least)
        yield begin, end
        end, size = begin, size * _GROWTH


class _Found:
    """The records found so far. They are read backwards, so those found first are the newest and stay."""

    def __init__(self, group: str, partitions: frozenset[TopicPartition]) -> None:
        self.group = group
        self._partitions = partitions
        self._commits: dict[TopicPartition, int | None] = {}
        self._generation: LastGeneration | None = None
        self._generation_seen = False

    @property
    def complete(self) -> bool:
        return self._generation_seen and self._partitions <= self._commits.keys()

    @property
    def commit_ms(self) -> dict[TopicPartition, int]:
        return {where: time for where, time in self._commits.items() if time is not None}

    @property
    def generation(self) -> LastGeneration | None:
        return self._generation

    def read(self, records: Iterable[Record]) -> None:
        """One step: its records from the first to the last."""
        commits: dict[TopicPartition, int | None] = {}
        generations: list[LastGeneration | None] = []
        for kind, key, value in self._own(records):
            if kind == "commit":
                commits[TopicPartition(key.topic, key.partition)] = value and value.commit_timestamp
            elif kind == "group":
                generations.append(value and _generation(value))
        self._commits = commits | self._commits
        if generations and not self._generation_seen:
            self._generation, self._generation_seen = generations[-1], True

    def _own(self, records: Iterable[Record]) -> Iterator[tuple[str, Any, Any]]:
        from kctl.segments.decoders import decode_offsets

        for record in records:
            decoded = decode_offsets(record)
            if decoded is not None and decoded.subject == self.group:
                yield decoded.type, decoded.key, decoded.value


def _generation(value: Any) -> LastGeneration:
    members = tuple(
        LastMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host.lstrip("/"),
            member.rebalance_timeout,
            member.session_timeout,
            assigned_partitions(member.assignment),
        )
        for member in value.members
    )
    return LastGeneration(value.generation, value.protocol or "", value.current_state_timestamp, members)


def homes(session: Session, groups: Iterable[str]) -> dict[str, TopicPartition]:
    """The partition that holds each group's records."""
    return homes_in(session, GROUPS_TOPIC, groups)


def homes_in(session: Session, name: str, keys: Iterable[str]) -> dict[str, TopicPartition]:
    """The partition of a coordinators' topic that holds the records of each group or transactional id."""
    (topic,) = session.metadata([name])
    if topic.error_code:
        raise failure(topic.error_code, f"{name} cannot be read")
    count = len(topic.partitions)
    return {key: TopicPartition(name, home_partition(key, count)) for key in keys}


def bounds(
    session: Session, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, int] | KctlError]:
    """The first offset of each partition, and its end."""
    firsts, lasts = (offsets_at(session, dict.fromkeys(partitions, time)) for time in (EARLIEST, LATEST))
    found: dict[TopicPartition, tuple[int, int] | KctlError] = {}
    for where, first in firsts.items():
        last = lasts[where]
        if isinstance(first, KctlError):
            found[where] = first
        else:
            found[where] = last if isinstance(last, KctlError) else (first.offset, last.offset)
    return found


def records_between(session: Session, home: TopicPartition, begin: int, end: int) -> Iterator[Record]:
    from kafkad.wire.records import RecordsError, iter_batches, iter_records

    offset = begin
    while offset < end:
        leader = session.leaders([home])[home]
        if isinstance(leader, KctlError):
            raise leader
        (topic,) = session.call(fetch_request(home, offset, _BYTES), leader).responses
        (partition,) = topic.partitions
        if partition.error_code:
            raise failure(partition.error_code, f"{home} cannot be read")
        data = memoryview(partition.records or b"")
        before = offset
        try:
            for at, header in iter_batches(data):
                offset = header.last_offset + 1
                if not header.is_control:
                    yield from (r for r in iter_records(data, at, header) if begin <= r.offset < end)
        except RecordsError as error:  # a batch that is cut off at the end of what was sent is asked for again
            if offset == before:
                raise KctlError(f"{home} cannot be read: {error}", code=ErrorCode.CORRUPT_MESSAGE.name) from None
        if offset == before:
            return  # what was there has been compacted away
