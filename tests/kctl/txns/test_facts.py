"""Ages, times left and reasons, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkad.names import TopicPartition
from kafkad.wire.log_records.transaction_state import TransactionLogKey, TransactionLogValue
from kafkad.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from kafkad.wire.records import Record
from kafkad.wire.schema import encode
from kctl.brokers.facts import ClusterState
from kctl.txns import facts
from kctl.txns.asking import Transaction
from kctl.txns.facts import times, waits_for
from kctl.txns.last_records import last_changes

WEEK_MS = 7 * 86_400_000
WHERE = tuple(TopicPartition("t", partition) for partition in range(5))


def transaction(state: str, start_ms: int = 1_000) -> Transaction:
    return Transaction("app", state, 1, 0, 60_000, start_ms, WHERE)


@pytest.mark.parametrize(
    ("state", "start_ms", "shown"),
    [
        ("Ongoing", 1_000, {"age_ms": 500, "left_ms": 59_500, "start_ms": 1_000}),
        ("PrepareCommit", 1_000, {"age_ms": 500, "start_ms": 1_000, "waiting_ms": 100}),
        ("CompleteCommit", 1_000, {"start_ms": None, "expires_ms": WEEK_MS - 100}),
        ("Empty", -1, {"start_ms": None, "expires_ms": WEEK_MS - 100}),
    ],
)
def test_only_what_is_open_has_an_age(state: str, start_ms: int, shown: dict[str, int | None]) -> None:
    """Though Kafka keeps the time of its beginning: --older lists those that are open."""
    assert times(transaction(state, start_ms), 1_500, WEEK_MS, changed_ms=1_400) == shown


def test_an_idle_id_expires_at_the_earliest_after_its_last_transaction() -> None:
    assert times(transaction("CompleteAbort"), 1_500, WEEK_MS)["expires_ms"] == WEEK_MS - 500
    assert "expires_ms" not in times(transaction("CompleteAbort"), 1_500)
    assert "expires_ms" not in times(transaction("Empty", -1), 1_500, WEEK_MS)


def test_nothing_is_left_of_the_time_of_one_that_is_late() -> None:
    assert times(transaction("Ongoing"), 90_000)["left_ms"] == 0


def test_a_decided_transaction_waits_for_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "cluster_state", lambda *_: ClusterState(None, {3: 1_795_400_000_000}))
    partitions = [(1, [1], [1]), (2, [2], [2]), (-1, [2, 1], [2]), (-1, [2, 3], [])]

    class Cluster:
        """Brokers 1 and 4 are there."""

        cluster = SimpleNamespace(brokers={1: None, 4: None})

        def metadata(self, topics: list[str]) -> list[Any]:
            assert topics == ["t"]
            there = [
                MetadataResponsePartition(partition_index=at, leader_id=leader, replica_nodes=replicas, isr_nodes=isr)
                for at, (leader, replicas, isr) in enumerate(partitions)
            ]
            return [MetadataResponseTopic(name="t", partitions=there)]

    session: Any = Cluster()
    assert waits_for(session, [transaction("PrepareAbort"), transaction("Ongoing")]) == {
        "app": (
            "t-0 (leader 1)",
            "t-1 (leader 2 is down)",
            "t-2 (no leader: broker 2 is down)",
            "t-3 (no leader: broker 2 is down, broker 3 is down since 2026-11-23T02:13:20.000Z)",
            "t-4 (deleted)",
        )
    }
    assert waits_for(session, [transaction("Ongoing"), transaction("Empty")]) == {}


def test_the_last_record_of_an_id_says_when_its_state_changed() -> None:
    def record(name: str, at_ms: int | None) -> Record:
        value = None
        if at_ms is not None:
            state = TransactionLogValue(transaction_partitions=[], transaction_last_update_timestamp_ms=at_ms)
            value = b"\0\0" + bytes(encode(state, 0))
        return Record(0, 0, b"\0\0" + bytes(encode(TransactionLogKey(transactional_id=name), 0)), value)

    records = [record("a", 5), record("other", 9), record("a", 7), record("b", 3), record("b", None)]
    assert last_changes({"a", "b", "c"}, records) == {"a": 7, "b": 3}
