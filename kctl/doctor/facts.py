"""The facts that the checks look at, read from the cluster in as few rounds of requests as possible."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.acls.asking import Filter
from kctl.acls.asking import described as acls_described
from kctl.acls.bindings import Binding
from kctl.brokers.facts import BrokerFacts, broker_facts
from kctl.configs.resources import Resource, described
from kctl.doctor.health import HealthReport, health_report, listener_of
from kctl.errors import KctlError
from kctl.groups.culprits import judge, suspects
from kctl.groups.group import REBALANCING, Group, labels
from kctl.groups.group_lag import GroupLag, every_group, lags_of_groups, unknown_lags
from kctl.groups.history import History, read_histories
from kctl.groups.partition_lag import PartitionLag
from kctl.groups.recent_commits import Recent, recent
from kctl.partitions.requests import moves_as_far_as_known
from kctl.partitions.throttle import Throttles, throttles
from kctl.reach.log_dirs import LogDir
from kctl.reach.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetAt, offsets_at
from kctl.reach.stores import tls_context
from kctl.texts.output import note
from kctl.txns.hanging import find_hanging
from kctl.txns.lingering import Lingering, open_transactions

if TYPE_CHECKING:
    from kctl.reach.session import Session, Topic

SETTINGS, GROUPS, THROTTLES, TRANSACTIONS, ACLS = "settings", "groups", "throttles", "transactions", "acls"
RETENTION, NEWEST, PROGRESS, MOVES = "retention", "newest", "progress", "moves"
DIRECTORIES, BROKER_SETTINGS, HEALTH = "directories", "broker settings", "health"

TOPIC_SETTINGS = (
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "retention.ms",
    "retention.bytes",
    "cleanup.policy",
)
OPEN_WITHOUT_ACL = "allow.everyone.if.no.acl.found"
"""Brokers describe it only where it is set, and Kafka without its value, as a secret."""
SETTINGS_OF_BROKERS = (
    "authorizer.class.name",
    OPEN_WITHOUT_ACL,
    "auto.create.topics.enable",
    "unclean.leader.election.enable",
    "offsets.topic.replication.factor",
    "transaction.max.timeout.ms",
    "broker.rack",
    "http.listener",
)
_MAX_TIMEOUT_MS = 15 * 60 * 1000
SILENT_MS = 5 * 60_000
"""A live member commits within that: Kafka's clients leave the group when they have not polled for so long."""
SOON = 0.25
"""The part of a topic's retention that is short notice: what has less left is about to go."""

Settings = Mapping[str, str | None]


class Facts(NamedTuple):
    """Empty where nothing was asked, or nothing could be seen: `unseen` says what, and why."""

    now_ms: int
    controller_id: int
    topics: tuple[Topic, ...]
    """The topics in Metadata's response."""
    brokers: tuple[BrokerFacts, ...]
    directories: tuple[LogDir, ...] = ()
    versions: Mapping[int, Mapping[int, tuple[int, int]]] = {}
    """The APIs that each broker serves."""
    topic_settings: Mapping[str, Settings] = {}
    broker_settings: Mapping[int, Settings] = {}
    groups: Mapping[str, GroupLag] = {}
    starts: Mapping[TopicPartition, int] = {}
    """Log start offsets of the partitions that groups have committed to."""
    soon_gone: Mapping[TopicPartition, int] = {}
    """For partitions on which a group lags: records below this offset are about to be deleted for their age."""
    waited_for: Mapping[TopicPartition, int] = {}
    """For partitions on which members lag: records below this offset have been there for `SILENT_MS`."""
    recent: Mapping[str, Recent] = {}
    """Commits of groups that have such records, within this time."""
    suspects: Mapping[str, tuple[str, ...]] = {}
    """Members that are not known to have joined, for groups in a rebalance."""
    newest: Mapping[TopicPartition, int] = {}
    """The highest timestamp of a partition's records."""
    throttles: Throttles | None = None
    adding: Mapping[TopicPartition, tuple[int, ...]] = {}
    """For partitions that move: the replicas that are being added."""
    hanging: tuple[Mapping[str, Any], ...] = ()
    transactions: tuple[Lingering, ...] = ()
    """Those that are open."""
    acls: tuple[Binding, ...] = ()
    growth: Mapping[tuple[int, str], float] = {}
    """Bytes a second by which the free space of a broker's directory shrinks, where it was looked at twice."""
    certificate_until_ms: Mapping[int, int] = {}
    """The time at which a broker's certificate expires, for brokers that have one."""
    health: Mapping[int, HealthReport] = {}
    """What each broker says of itself at /health."""
    unseen: Mapping[str, tuple[KctlError, ...]] = {}
    """Facts that checks need and that could not be read, or not all of them, with the errors."""

    @property
    def standstill(self) -> str | None:
        """Until when no metadata can be changed, as far as brokers tell; None where nothing is known to stand still."""
        if self.controller_id < 0:
            return "there is a controller"
        cut_off = {broker for broker, report in self.health.items() if report.cut_off is not None}
        registered = {broker.id for broker in self.alive}
        if cut_off and (self.controller_id in cut_off or registered <= cut_off):
            return "ZooKeeper is back"
        if any(report.takes_no_changes for report in self.health.values()):
            return "the disk of the metadata takes changes"
        return None

    @property
    def alive(self) -> list[BrokerFacts]:
        return [broker for broker in self.brokers if broker.host is not None]

    @property
    def down(self) -> list[BrokerFacts]:
        """Named in replica lists only: nobody says where they were."""
        return [broker for broker in self.brokers if broker.host is None]

    def without(self, need: str, errors: Iterable[KctlError]) -> Facts:
        """The same, where these kept somebody from seeing all that is needed."""
        told = (*self.unseen.get(need, ()), *errors)
        return self._replace(unseen={**self.unseen, need: told}) if told else self


def gather(session: Session, needs: Collection[str], now_ms: int) -> Facts:
    topics = tuple(sorted(session.metadata(), key=lambda topic: str(topic.name)))
    brokers, directories, errors = broker_facts(session, topics)
    answering = [broker.id for broker in brokers if broker.release is not None]
    connections = {broker: session.connection(broker) for broker in answering}
    until = {broker: connection.certificate_until_ms() for broker, connection in connections.items()}
    facts = Facts(
        now_ms=now_ms,
        controller_id=session.cluster.controller_id,
        topics=topics,
        brokers=tuple(brokers),
        directories=tuple(directories),
        versions={broker: connection.versions for broker, connection in connections.items()},
        certificate_until_ms={broker: end for broker, end in until.items() if end is not None},
    ).without(DIRECTORIES, errors)
    if SETTINGS in needs:
        facts = _with_topic_settings(session, facts)
    if BROKER_SETTINGS in needs:
        facts = _with_broker_settings(session, facts, answering)
    for need, read in _READERS:
        if need in needs:
            try:
                facts = read(session, facts)
            except KctlError as error:
                facts = facts.without(need, [error])
    return facts


def grown(before: Iterable[LogDir], after: Iterable[LogDir], seconds: float) -> dict[tuple[int, str], float]:
    """The bytes per second by which each directory's free space shrank."""
    free = {(each.broker, each.path): each.free for each in before}
    found = {}
    for each in after:
        earlier = free.get((each.broker, each.path))
        if earlier is not None and each.free is not None:
            found[each.broker, each.path] = (earlier - each.free) / seconds
    return found


_NO_ACLS = (ErrorCode.SECURITY_DISABLED.name, ErrorCode.UNSUPPORTED_VERSION.name)


def _with_acls(session: Session, facts: Facts) -> Facts:
    """Without an authorizer there are none."""
    try:
        return facts._replace(acls=tuple(acls_described(session, Filter())))
    except KctlError as error:
        return facts if error.code in _NO_ACLS else facts.without(ACLS, [error])


def _with_topic_settings(session: Session, facts: Facts) -> Facts:
    found, told = described(session, [Resource("topic", topic.name) for topic in facts.topics], TOPIC_SETTINGS)
    settings = {of.name: {entry.name: entry.value for entry in entries} for of, entries in found.items()}
    return facts._replace(topic_settings=settings).without(SETTINGS, told)


def _with_broker_settings(session: Session, facts: Facts, answering: Iterable[int]) -> Facts:
    found, told = described(session, [Resource("broker", str(broker)) for broker in answering], SETTINGS_OF_BROKERS)
    settings = {int(of.name): {entry.name: entry.value for entry in entries} for of, entries in found.items()}
    return facts._replace(broker_settings=settings).without(BROKER_SETTINGS, told)


def _with_health(session: Session, facts: Facts) -> Facts:
    """Brokers that have `http.listener`, a setting of kafkad, are asked there; others have nothing to say."""
    found: dict[int, HealthReport] = {}
    unseen = []
    for broker in facts.brokers:
        setting = facts.broker_settings.get(broker.id, {}).get("http.listener")
        listener = listener_of(setting, broker.host or "")
        if listener is None:
            continue
        try:
            found[broker.id] = health_report(listener, lambda: tls_context(session.access))
        except OSError as error:
            what = f"broker {broker.id} cannot be asked how it is at {listener}/health"
            unseen.append(KctlError(f"{what}: {error}"))
    return facts._replace(health=found).without(HEALTH, unseen)


def _with_groups(session: Session, facts: Facts) -> Facts:
    chosen = every_group(session)
    group_lags, told = lags_of_groups(session, chosen)
    for error in unknown_lags(group_lags):  # of partitions that other checks are about
        note(session.settings, error.with_code)
    committed = {lag.where for look in group_lags.values() for lag in look.lags if lag.committed is not None}
    there = {TopicPartition(t.name, p.partition_index) for t in facts.topics for p in t.partitions if p.leader_id >= 0}
    starts, more = _known(offsets_at(session, dict.fromkeys(sorted(committed & there), EARLIEST)))
    facts = facts.without(GROUPS, [*chosen.silent, *told, *more])
    return facts._replace(groups=group_lags, starts={where: at.offset for where, at in starts.items()})


def _known(
    found: Mapping[TopicPartition, OffsetAt | KctlError],
) -> tuple[dict[TopicPartition, OffsetAt], list[KctlError]]:
    known = {where: at for where, at in found.items() if not isinstance(at, KctlError)}
    return known, [at for at in found.values() if isinstance(at, KctlError)]


def _with_retention(session: Session, facts: Facts) -> Facts:
    """Only partitions are asked for that some group has still to read, of topics that delete what is old."""
    lagging = {
        lag.where for look in facts.groups.values() for lag in look.lags if lag.committed is not None and lag.lag
    }
    times = {
        where: max(facts.now_ms - int(kept * (1 - SOON)), 0)
        for where in sorted(lagging)
        if (kept := retention_ms(facts.topic_settings.get(where.topic, {}))) is not None
    }
    found, errors = _known(offsets_at(session, times))
    return facts.without(RETENTION, errors)._replace(soon_gone=_reached(facts, found))


def _reached(facts: Facts, found: Mapping[TopicPartition, OffsetAt]) -> dict[TopicPartition, int]:
    """The offset found for each partition; the partition's end if no record is that young."""
    ends = {lag.where: lag.end for look in facts.groups.values() for lag in look.lags}
    return {where: at.offset if at.offset >= 0 else ends[where] or 0 for where, at in found.items()}


def _suspects(group: Group, history: History) -> tuple[str, ...]:
    names = labels(group.members)
    return tuple(names[one.member.id] for one in suspects(judge(group, history)))


def _with_progress(session: Session, facts: Facts) -> Facts:
    """Adds the progress of groups. Without access to `__consumer_offsets`, the facts say only that it was not seen."""
    waiting = {name: look.group for name, look in facts.groups.items() if look.group.state in REBALANCING}
    histories = read_histories(session, dict.fromkeys(waiting, ()))
    facts = facts._replace(suspects={name: _suspects(group, histories[name]) for name, group in waiting.items()})
    held = {
        lag.where
        for look in facts.groups.values()
        for lag in look.lags
        if lag.member is not None and lag.committed is not None and lag.lag
    }
    since_ms = facts.now_ms - SILENT_MS
    found, errors = _known(offsets_at(session, dict.fromkeys(sorted(held), since_ms)))
    facts = facts.without(PROGRESS, errors)
    waited_for = _reached(facts, found)
    late = {name for name, look in facts.groups.items() if any(is_late(lag, waited_for) for lag in look.lags)}
    if not late:
        return facts
    try:
        return facts._replace(waited_for=waited_for, recent=recent(session, sorted(late), since_ms))
    except KctlError as error:
        return facts.without(PROGRESS, [error])


def is_late(lag: PartitionLag, waited_for: Mapping[TopicPartition, int]) -> bool:
    """True if the record that its member reads next has been there for long."""
    return lag.member is not None and lag.committed is not None and lag.committed < waited_for.get(lag.where, 0)


def retention_ms(settings: Settings) -> int | None:
    """The age after which records are deleted; None: never."""
    if "delete" not in (settings.get("cleanup.policy") or ""):
        return None
    kept = int(settings.get("retention.ms") or -1)
    return kept if kept >= 0 else None


def deletes(settings: Settings) -> bool:
    """True if retention removes records, by age or by size."""
    by_size = "delete" in (settings.get("cleanup.policy") or "") and int(settings.get("retention.bytes") or -1) >= 0
    return by_size or retention_ms(settings) is not None


def _with_newest(session: Session, facts: Facts) -> Facts:
    """Brokers before 3.0 cannot tell."""
    where = [TopicPartition(t.name, p.partition_index) for t in facts.topics for p in t.partitions if p.leader_id >= 0]
    found, errors = _known(offsets_at(session, dict.fromkeys(where, MAX_TIMESTAMP)))
    return facts.without(NEWEST, errors)._replace(newest={one: at.timestamp for one, at in found.items()})


def _with_throttles(session: Session, facts: Facts) -> Facts:
    found = throttles(session)
    return facts.without(THROTTLES, found.errors)._replace(throttles=found)


def _with_moves(session: Session, facts: Facts) -> Facts:
    """Who may not ask for moves takes what is being added for lagging, as all do who see Metadata only."""
    return facts._replace(adding={where: each.adding for where, each in moves_as_far_as_known(session).items()})


def _with_transactions(session: Session, facts: Facts) -> Facts:
    """Partitions whose last stable offset lags behind their end have open transactions: only they are asked."""
    where = [TopicPartition(t.name, p.partition_index) for t in facts.topics for p in t.partitions if p.leader_id >= 0]
    stable = offsets_at(session, dict.fromkeys(where, LATEST), committed=True)
    ends = offsets_at(session, dict.fromkeys(where, LATEST))
    facts = facts.without(TRANSACTIONS, [*_known(stable)[1], *_known(ends)[1]])
    open_ones = [one for one in where if _differ(stable[one], ends[one])]
    try:
        rows, told = find_hanging(session, open_ones, facts.now_ms, _MAX_TIMEOUT_MS)
    except KctlError as error:
        rows, told = [], [error]
    lingering, silent = open_transactions(session)
    told += [error for error in silent if error.code != ErrorCode.UNSUPPORTED_VERSION.name]  # it has none
    return facts.without(TRANSACTIONS, told)._replace(hanging=tuple(rows), transactions=tuple(lingering))


def _differ(stable: Any, end: Any) -> bool:
    return not isinstance(stable, KctlError) and not isinstance(end, KctlError) and stable.offset < end.offset


_READERS: tuple[tuple[str, Callable[[Session, Facts], Facts]], ...] = (
    (HEALTH, _with_health),
    (GROUPS, _with_groups),
    (RETENTION, _with_retention),
    (PROGRESS, _with_progress),
    (NEWEST, _with_newest),
    (THROTTLES, _with_throttles),
    (MOVES, _with_moves),
    (TRANSACTIONS, _with_transactions),
    (ACLS, _with_acls),
)
"""What else can be read, in the order in which one builds on another."""
