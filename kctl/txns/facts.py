"""What commands show of a transactional id besides the answer of its coordinator."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kafkad.names import TopicPartition
from kctl.brokers.facts import cluster_state
from kctl.configs.resources import Resource
from kctl.configs.resources import described as settings_of
from kctl.texts.output import Row, rfc3339
from kctl.txns.asking import Transaction

if TYPE_CHECKING:
    from kctl.reach.session import Session

_EXPIRATION = "transactional.id.expiration.ms"


def times(one: Transaction, now_ms: int, expiration_ms: int | None = None, changed_ms: int | None = None) -> Row:
    """Ages are those of what is open; idle ids expire. Pure.

    Without the time at which its state last changed, an id expires at the earliest so long after its last transaction
    began.
    """
    begun = one.start_ms if one.start_ms >= 0 else None
    used = begun if changed_ms is None else changed_ms
    row: dict[str, Any] = {"start_ms": begun if one.is_open else None}
    if one.is_open:
        row["age_ms"] = max(now_ms - one.start_ms, 0)
    elif used is not None and expiration_ms is not None:
        row["expires_ms"] = max(used + expiration_ms - now_ms, 0)
    if one.state == "Ongoing" and one.start_ms >= 0:
        row["left_ms"] = max(one.start_ms + one.timeout_ms - now_ms, 0)
    if one.is_decided and changed_ms is not None:
        row["waiting_ms"] = max(now_ms - changed_ms, 0)
    return row


def waits_for(session: Session, transactions: Iterable[Transaction]) -> dict[str, tuple[str, ...]]:
    """What each decided transaction waits for: the partitions without its marker, and why they have none yet.

    Since when a broker is down only kafkad knows.
    """
    decided = [one for one in transactions if one.is_decided]
    topics = sorted({where.topic for one in decided for where in one.partitions})
    if not topics:
        return {}
    there = {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in session.metadata(topics)
        for partition in topic.partitions
    }
    alive = session.cluster.brokers.keys()
    since: Mapping[int, int] = {}
    if not all(partition.leader_id in alive for partition in there.values()):
        since = cluster_state(session, alive).absent_since_ms
    return {
        one.transactional_id: tuple(f"{where} ({_leader(there.get(where), alive, since)})" for where in one.partitions)
        for one in decided
    }


def _leader(partition: Any, alive: Collection[int], since: Mapping[int, int]) -> str:
    def down(broker: int) -> str:
        return f"{broker} is down since {rfc3339(since[broker])}" if broker in since else f"{broker} is down"

    if partition is None:
        return "deleted"
    if partition.leader_id >= 0:
        return f"leader {partition.leader_id if partition.leader_id in alive else down(partition.leader_id)}"
    gone = [f"broker {down(each)}" for each in partition.isr_nodes or partition.replica_nodes if each not in alive]
    return ": ".join(filter(None, ("no leader", ", ".join(gone))))


def expirations(session: Session, coordinators: Iterable[int]) -> Mapping[int, int]:
    """How long each of these brokers remembers an idle id; those that do not say so are left out."""
    asked = {Resource("broker", str(broker)): broker for broker in dict.fromkeys(coordinators)}
    if not asked:
        return {}
    found, _ = settings_of(session, list(asked), [_EXPIRATION])
    return {
        asked[resource]: int(entry.value)
        for resource, entries in found.items()
        for entry in entries
        if entry.name == _EXPIRATION and entry.value is not None
    }
