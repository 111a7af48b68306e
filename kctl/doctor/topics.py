"""Checks of topics and their partitions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kafkad.names import GROUPS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from kctl.brokers.release import caps_min_isr
from kctl.doctor.facts import MOVES, NEWEST, SETTINGS, Facts
from kctl.doctor.finding import Check, Finding, Severity
from kctl.texts.output import counted, duration_text
from kctl.texts.parsing import whole_number
from kctl.topics.health import Needed, settled

_AHEAD_MS = 5 * 60 * 1000
"""Clocks differ, and so much does no harm."""


def _partitions(facts: Facts) -> Iterator[tuple[TopicPartition, Any]]:
    for topic in facts.topics:
        for partition in sorted(topic.partitions, key=lambda partition: int(partition.partition_index)):
            yield TopicPartition(topic.name, partition.partition_index), partition


def _needed(facts: Facts, topic: str) -> Needed:
    value = facts.topic_settings.get(topic, {}).get("min.insync.replicas")
    capped = all(map(caps_min_isr, facts.versions.values()))
    return Needed(whole_number(value or ""), capped)


_COORDINATED = {GROUPS_TOPIC: "groups", TRANSACTIONS_TOPIC: "transactions"}
"""What stands still while a partition of that topic has no leader."""
_REPLICAS = 3
"""As many as these topics have where there are enough brokers."""


def offline(facts: Facts) -> Iterator[Finding]:
    """Each topic of the coordinators is a finding of its own: more than its records stands still."""
    without: dict[str, list[tuple[TopicPartition, Any]]] = {}
    for where, one in _partitions(facts):
        if one.leader_id < 0:
            without.setdefault(where.topic if where.topic in _COORDINATED else "", []).append((where, one))
    for topic, found in without.items():
        what = f"{counted(len(found), 'partition')}{f' of {topic}' if topic else ''} without a leader"
        harm = "nobody can read or write"
        if kind := _COORDINATED.get(topic):
            harm = f"their {kind} stand still, and are in no list of {kind}"
        items = tuple(str(where) for where, _ in found)
        yield Finding(Severity.ERROR, f"{what}: {harm}", items, _bringing_back(facts, [one for _, one in found]))


def _bringing_back(facts: Facts, partitions: Sequence[Any]) -> str:
    """What has their replicas: brokers that are down, and disks of others."""
    down = {broker.id for broker in facts.down}
    wanted = down & {broker for one in partitions for broker in one.replica_nodes}
    disks = {broker for one in partitions for broker in one.offline_replicas} - down
    ways = [f"start broker {_numbers(wanted)}"] if wanted else []
    if disks:
        ways.append(f"mend the offline disk of broker {_numbers(disks)} (kctl brokers log-dirs), then restart it")
    return "; ".join(ways) or "kctl topics describe --unhealthy"


def _numbers(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))


def under_min_isr(facts: Facts) -> Iterator[Finding]:
    below: list[str] = []
    at: list[str] = []
    for where, one in _partitions(facts):
        lasting = settled(one.replica_nodes, facts.adding.get(where, ()))
        least = _needed(facts, where.topic).of(len(one.replica_nodes))
        if least is None or one.leader_id < 0:
            continue
        if len(one.isr_nodes) < least:
            below.append(str(where))
        elif len(one.isr_nodes) == least and not set(lasting) <= set(one.isr_nodes):
            at.append(str(where))
    if below:
        summary = f"{counted(len(below), 'partition')} below min.insync.replicas: acks=all is refused"
        yield Finding(Severity.ERROR, summary, tuple(below), "kctl topics describe --unhealthy")
    if at:
        summary = f"{counted(len(at), 'partition')} at min.insync.replicas: one more failure stops writes"
        yield Finding(Severity.WARN, summary, tuple(at), "kctl topics describe --unhealthy")


def under_replicated(facts: Facts) -> Iterator[Finding]:
    lagging = [
        str(where)
        for where, one in _partitions(facts)
        if one.leader_id >= 0 and not set(settled(one.replica_nodes, facts.adding.get(where, ()))) <= set(one.isr_nodes)
    ]
    if lagging:
        summary = f"{counted(len(lagging), 'partition')} under-replicated"
        yield Finding(Severity.WARN, summary, tuple(lagging), "kctl topics list --unhealthy")


def away(facts: Facts) -> list[str]:
    """The partitions that an election of preferred leaders would give to another replica."""
    return [
        str(where)
        for where, one in _partitions(facts)
        if one.replica_nodes
        and one.leader_id >= 0
        and one.leader_id != one.replica_nodes[0]
        and one.replica_nodes[0] in one.isr_nodes
    ]


def not_preferred(facts: Facts) -> Iterator[Finding]:
    if moved := away(facts):
        summary = f"{counted(len(moved), 'partition')} not led by the preferred replica, which is in sync"
        yield Finding(Severity.INFO, summary, tuple(moved), "kctl partitions elect --preferred --all")


def single_replica(facts: Facts) -> Iterator[Finding]:
    if len(facts.brokers) < 2:
        return
    single = [t.name for t in facts.topics if t.partitions and all(len(p.replica_nodes) == 1 for p in t.partitions)]
    alone = tuple(name for name in _COORDINATED if name in single)
    if alone:
        kinds = " and ".join(_COORDINATED[name] for name in alone)
        summary = f"one replica of {' and '.join(alone)}: with its broker the {kinds} stand still"
        replicas = min(_REPLICAS, len(facts.brokers))
        waiting = _waiting_for(facts, replicas, alone)
        fix = f"{waiting}kctl partitions plan --rf {replicas} --topics {','.join(alone)}"
        yield Finding(Severity.WARN, summary, alone, fix)
    others = tuple(name for name in single if name not in _COORDINATED)
    if others:
        summary = f"{counted(len(others), 'topic')} with one replica"
        fix = f"{_waiting_for(facts, 2, ())}kctl partitions plan --rf 2 --topics NAME"
        yield Finding(Severity.INFO, summary, others, fix)


def _waiting_for(facts: Facts, replicas: int, topics: Collection[str]) -> str:
    """The beginning of a fix that gives topics so many replicas: the brokers that it needs and that are down."""
    down = {broker.id for broker in facts.down}
    if len(facts.brokers) - len(down) >= replicas:
        leaderless = [one for where, one in _partitions(facts) if where.topic in topics and one.leader_id < 0]
        down &= {broker for one in leaderless for broker in one.replica_nodes}
    return f"once broker {_numbers(down)} is back: " if down else ""


def min_isr_settings(facts: Facts) -> Iterator[Finding]:
    impossible: list[str] = []
    strict: list[str] = []
    for topic in facts.topics:
        replicas = max((len(partition.replica_nodes) for partition in topic.partitions), default=0)
        least = _needed(facts, topic.name).of(replicas)
        if least is not None and replicas and least > replicas:
            impossible.append(topic.name)
        elif least is not None and replicas > 1 and least == replicas:
            strict.append(topic.name)
    if impossible:
        summary = f"{counted(len(impossible), 'topic')} that need more replicas in sync than they have"
        fix = "kctl configs set topic/NAME min.insync.replicas=1"
        yield Finding(Severity.ERROR, summary, tuple(impossible), fix)
    if strict:
        summary = f"{counted(len(strict), 'topic')} with min.insync.replicas = replicas: one failure stops writes"
        yield Finding(
            Severity.WARN, summary, tuple(strict), "kctl topics describe NAME; one less than there are replicas"
        )


def shared_racks(facts: Facts) -> Iterator[Finding]:
    racks = {broker.id: broker.rack for broker in facts.brokers if broker.rack is not None}
    doubled = _sharing(facts, racks)
    if doubled:
        there = len(set(racks.values()))
        summary = f"{counted(len(doubled), 'partition')} with replicas in one rack, though there are {there}"
        yield Finding(Severity.WARN, summary, doubled, "kctl partitions plan --rack-aware strict")


def shared_hosts(facts: Facts) -> Iterator[Finding]:
    hosts = {broker.id: broker.host for broker in facts.brokers if broker.host is not None}
    doubled = _sharing(facts, hosts)
    if doubled:
        there = len(set(hosts.values()))
        summary = f"{counted(len(doubled), 'partition')} with replicas on one host, though there are {there}"
        fix = "give the brokers of a host one broker.rack, then kctl partitions plan --rack-aware strict"
        yield Finding(Severity.WARN, summary, doubled, fix)


def _sharing(facts: Facts, places: Mapping[int, str]) -> tuple[str, ...]:
    """Partitions with two replicas in one place, though there are enough."""
    there = len(set(places.values()))
    doubled = []
    for where, one in _partitions(facts):
        own = [places[broker] for broker in one.replica_nodes if broker in places]
        if len(set(own)) < min(len(own), there):
            doubled.append(str(where))
    return tuple(doubled) if there > 1 else ()


def unclean(facts: Facts) -> Iterator[Finding]:
    names = tuple(
        name for name, own in facts.topic_settings.items() if own.get("unclean.leader.election.enable") == "true"
    )
    if names:
        summary = f"{counted(len(names), 'topic')} may lose records by an unclean election"
        fix = "kctl configs set topic/NAME unclean.leader.election.enable=false"
        yield Finding(Severity.WARN, summary, names, fix)


def from_the_future(facts: Facts) -> Iterator[Finding]:
    """A producer's clock is wrong. Such records outlive retention, and windows that wait for them close too early."""
    ahead = {
        where: newest - facts.now_ms for where, newest in facts.newest.items() if newest > facts.now_ms + _AHEAD_MS
    }
    if ahead:
        most = duration_text(max(ahead.values()))
        summary = f"{counted(len(ahead), 'partition')} with records from the future (up to {most} ahead)"
        fix = "look at the clocks of producers; kctl configs set topic/NAME message.timestamp.after.max.ms=3600000"
        yield Finding(Severity.WARN, summary, tuple(map(str, ahead)), fix)


CHECKS = (
    Check("offline", "Partitions without a leader.", offline),
    Check("min-isr", "Partitions at or below min.insync.replicas.", under_min_isr, (SETTINGS, MOVES)),
    Check("under-replicated", "Partitions with replicas that are not in sync.", under_replicated, (MOVES,)),
    Check("preferred-leaders", "Partitions that another replica should lead.", not_preferred, changes=True),
    Check("single-replica", "Topics that one broker takes with it.", single_replica, changes=True),
    Check(
        "min-isr-settings",
        "min.insync.replicas that leaves no room for a failure.",
        min_isr_settings,
        (SETTINGS,),
        changes=True,
    ),
    Check("shared-racks", "Partitions with replicas in the same rack.", shared_racks, changes=True),
    Check("shared-hosts", "Partitions with replicas on the same host.", shared_hosts, changes=True),
    Check("unclean-elections", "Topics whose leaders may be elected uncleanly.", unclean, (SETTINGS,), changes=True),
    Check("clocks", "Records with timestamps that are still to come.", from_the_future, (NEWEST,)),
)
