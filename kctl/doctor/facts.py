"""What the checks look at, asked of the cluster in as few rounds of requests as there can be."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkad.names import TopicPartition
from kctl.acls.asking import Filter
from kctl.acls.asking import described as acls_described
from kctl.acls.bindings import Binding
from kctl.brokers.facts import BrokerFacts, broker_facts
from kctl.choosing import Choice
from kctl.configs.resources import Resource, described
from kctl.errors import KctlError
from kctl.groups.culprits import judge, suspects
from kctl.groups.group import REBALANCING, Group, labels
from kctl.groups.history import read_history
from kctl.groups.looking import Look, chosen_groups, look_at
from kctl.groups.partition_lag import PartitionLag
from kctl.groups.recent import Recent, recent
from kctl.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, offsets_at
from kctl.partitions.throttle import Throttles, throttles
from kctl.sizes import LogDir
from kctl.txns.hanging import find_hanging

if TYPE_CHECKING:
    from kctl.session import Session

SETTINGS, GROUPS, THROTTLES, TRANSACTIONS, ACLS = "settings", "groups", "throttles", "transactions", "acls"
RETENTION, NEWEST, PROGRESS = "retention", "newest", "progress"

TOPIC_SETTINGS = ("min.insync.replicas", "unclean.leader.election.enable", "retention.ms", "cleanup.policy")
BROKER_SETTINGS = (
    "auto.create.topics.enable",
    "unclean.leader.election.enable",
    "offsets.topic.replication.factor",
    "transaction.max.timeout.ms",
    "broker.rack",
)
_MAX_TIMEOUT_MS = 15 * 60 * 1000
SILENT_MS = 5 * 60_000
"""A live member commits within that: Kafka's clients leave the group when they have not polled for so long."""
SOON = 0.25
"""The part of a topic's retention that is short notice: what has less left is about to go."""

Settings = Mapping[str, str | None]


class Facts(NamedTuple):
    """Empty where nothing was asked, or nobody answered: `errors` say what."""

    now_ms: int
    controller_id: int
    topics: tuple[Any, ...]
    """As Metadata has them."""
    brokers: tuple[BrokerFacts, ...]
    directories: tuple[LogDir, ...] = ()
    versions: Mapping[int, Mapping[int, tuple[int, int]]] = {}
    """The APIs that each broker serves."""
    topic_settings: Mapping[str, Settings] = {}
    broker_settings: Mapping[int, Settings] = {}
    groups: Mapping[str, Look] = {}
    starts: Mapping[TopicPartition, int] = {}
    """Where partitions begin that groups have committed to."""
    soon_gone: Mapping[TopicPartition, int] = {}
    """Where a group lags: records below this offset are about to be deleted for their age."""
    waited_for: Mapping[TopicPartition, int] = {}
    """Where members lag: records below this offset have been there for `SILENT_MS`."""
    recent: Mapping[str, Recent] = {}
    """What groups with such records committed in this time."""
    suspects: Mapping[str, tuple[str, ...]] = {}
    """Of groups in a rebalance: members that are not known to have joined."""
    newest: Mapping[TopicPartition, int] = {}
    """The highest timestamp of a partition's records."""
    throttles: Throttles | None = None
    hanging: tuple[Mapping[str, Any], ...] = ()
    acls: tuple[Binding, ...] = ()
    growth: Mapping[tuple[int, str], float] = {}
    """Bytes a second by which the free space of a broker's directory shrinks, where it was looked at twice."""
    certificate_days: float | None = None
    errors: tuple[KctlError, ...] = ()


def gather(session: Session, needs: Collection[str], now_ms: int) -> Facts:
    topics = tuple(sorted(session.metadata().topics, key=lambda topic: str(topic.name)))
    brokers, directories, errors = broker_facts(session, topics)
    answering = [broker.id for broker in brokers if broker.release is not None]
    facts = Facts(
        now_ms=now_ms,
        controller_id=session.cluster.controller_id,
        topics=topics,
        brokers=tuple(brokers),
        directories=tuple(directories),
        versions={broker: session.connection(broker).versions for broker in answering},
        certificate_days=session.connection().certificate_days(now_ms),
        errors=tuple(errors),
    )
    if SETTINGS in needs:
        facts = _with_settings(session, facts, answering)
    if GROUPS in needs:
        facts = _with_groups(session, facts)
    if RETENTION in needs:
        facts = _with_retention(session, facts)
    if PROGRESS in needs:
        facts = _with_progress(session, facts)
    if NEWEST in needs:
        facts = _with_newest(session, facts)
    if THROTTLES in needs:
        facts = _with_throttles(session, facts)
    if TRANSACTIONS in needs:
        facts = _with_transactions(session, facts)
    if ACLS in needs:
        facts = facts._replace(acls=_acls(session))
    return facts


def grown(before: Iterable[LogDir], after: Iterable[LogDir], seconds: float) -> dict[tuple[int, str], float]:
    """By how much each directory's free space shrank, a second."""
    free = {(each.broker, each.path): each.free for each in before}
    found = {}
    for each in after:
        earlier = free.get((each.broker, each.path))
        if earlier is not None and each.free is not None:
            found[each.broker, each.path] = (earlier - each.free) / seconds
    return found


def _acls(session: Session) -> tuple[Binding, ...]:
    """None where there is no authorizer, or where the one who asks may not see them: that is for kctl acls to say."""
    try:
        return tuple(acls_described(session, Filter()))
    except KctlError:
        return ()


def _with_settings(session: Session, facts: Facts, answering: Iterable[int]) -> Facts:
    of_topics, told = described(session, [Resource("topic", topic.name) for topic in facts.topics], TOPIC_SETTINGS)
    of_brokers, more = described(session, [Resource("broker", str(broker)) for broker in answering], BROKER_SETTINGS)
    return facts._replace(
        topic_settings={of.name: {entry.name: entry.value for entry in entries} for of, entries in of_topics.items()},
        broker_settings={
            int(of.name): {entry.name: entry.value for entry in entries} for of, entries in of_brokers.items()
        },
        errors=(*facts.errors, *told, *more),
    )


def _with_groups(session: Session, facts: Facts) -> Facts:
    looks, told = look_at(session, chosen_groups(session, Choice("group", (), (), ())))
    committed = {lag.where for look in looks.values() for lag in look.lags if lag.committed is not None}
    there = {TopicPartition(t.name, p.partition_index) for t in facts.topics for p in t.partitions if p.leader_id >= 0}
    starts = offsets_at(session, dict.fromkeys(sorted(committed & there), EARLIEST))
    known = {where: at.offset for where, at in starts.items() if not isinstance(at, KctlError)}
    return facts._replace(groups=looks, starts=known, errors=(*facts.errors, *told))


def _with_retention(session: Session, facts: Facts) -> Facts:
    """Only partitions are asked for that some group has still to read, of topics that delete what is old."""
    lagging = {
        lag.where for look in facts.groups.values() for lag in look.lags if lag.committed is not None and lag.lag
    }
    times = {
        where: facts.now_ms - int(kept * (1 - SOON))
        for where in sorted(lagging)
        if (kept := retention_ms(facts.topic_settings.get(where.topic, {}))) is not None
    }
    found = offsets_at(session, times)
    ends = {lag.where: lag.end for look in facts.groups.values() for lag in look.lags}
    reached = {
        where: at.offset if at.offset >= 0 else ends[where] or 0
        for where, at in found.items()
        if not isinstance(at, KctlError)
    }
    return facts._replace(soon_gone=reached)


def _suspects(session: Session, group: Group) -> tuple[str, ...]:
    names = labels(group.members)
    return tuple(names[one.member.id] for one in suspects(judge(group, read_history(session, group.name, ()))))


def _with_progress(session: Session, facts: Facts) -> Facts:
    """Whoever may not read `__consumer_offsets` is not told who is stuck, only that it could not be seen."""
    waiting = {name: look.group for name, look in facts.groups.items() if look.group.state in REBALANCING}
    facts = facts._replace(suspects={name: _suspects(session, group) for name, group in waiting.items()})
    held = {
        lag.where
        for look in facts.groups.values()
        for lag in look.lags
        if lag.member is not None and lag.committed is not None and lag.lag
    }
    since_ms = facts.now_ms - SILENT_MS
    found = offsets_at(session, dict.fromkeys(sorted(held), since_ms))
    ends = {lag.where: lag.end for look in facts.groups.values() for lag in look.lags}
    waited_for = {
        where: at.offset if at.offset >= 0 else ends[where] or 0
        for where, at in found.items()
        if not isinstance(at, KctlError)
    }
    late = {name for name, look in facts.groups.items() if any(is_late(lag, waited_for) for lag in look.lags)}
    if not late:
        return facts
    try:
        return facts._replace(waited_for=waited_for, recent=recent(session, sorted(late), since_ms))
    except KctlError as error:
        return facts._replace(errors=(*facts.errors, error))


def is_late(lag: PartitionLag, waited_for: Mapping[TopicPartition, int]) -> bool:
    """Whether what its member reads next has been there for long."""
    return lag.member is not None and lag.committed is not None and lag.committed < waited_for.get(lag.where, 0)


def retention_ms(settings: Settings) -> int | None:
    """After which age records are deleted; None: never."""
    if "delete" not in (settings.get("cleanup.policy") or ""):
        return None
    kept = int(settings.get("retention.ms") or -1)
    return kept if kept >= 0 else None


def _with_newest(session: Session, facts: Facts) -> Facts:
    """Brokers before 3.0 cannot tell."""
    where = [TopicPartition(t.name, p.partition_index) for t in facts.topics for p in t.partitions if p.leader_id >= 0]
    found = offsets_at(session, dict.fromkeys(where, MAX_TIMESTAMP))
    return facts._replace(newest={one: at.timestamp for one, at in found.items() if not isinstance(at, KctlError)})


def _with_throttles(session: Session, facts: Facts) -> Facts:
    try:
        found = throttles(session)
    except KctlError as error:
        return facts._replace(errors=(*facts.errors, error))
    return facts._replace(throttles=found, errors=(*facts.errors, *found.errors))


def _with_transactions(session: Session, facts: Facts) -> Facts:
    """Partitions whose last stable offset lags behind their end have open transactions: only they are asked."""
    where = [TopicPartition(t.name, p.partition_index) for t in facts.topics for p in t.partitions if p.leader_id >= 0]
    stable = offsets_at(session, dict.fromkeys(where, LATEST), committed=True)
    ends = offsets_at(session, dict.fromkeys(where, LATEST))
    open_ones = [one for one in where if _differ(stable[one], ends[one])]
    try:
        rows, told = find_hanging(session, open_ones, facts.now_ms, _MAX_TIMEOUT_MS)
    except KctlError as error:
        rows, told = [], [error]
    return facts._replace(hanging=tuple(rows), errors=(*facts.errors, *told))


def _differ(stable: Any, end: Any) -> bool:
    return not isinstance(stable, KctlError) and not isinstance(end, KctlError) and stable.offset < end.offset
