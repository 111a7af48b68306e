"""A scrape of many partitions and groups never works for long without letting others in."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from time import thread_time
from types import SimpleNamespace
from typing import Any

from kafkad.broker.metering import _controller_families
from kafkad.broker.partition_metrics import READ_AT_ONCE, log_families, partition_families
from kafkad.broker.quotas import QuotasInForce
from kafkad.group.lag import lag_families
from kafkad.log.files import Files
from kafkad.log.producers import ProducerStates
from kafkad.log.snapshots import Snapshots
from kafkad.metrics import PAUSE, Family, Registry
from kafkad.model import DEFAULT, Entity
from kafkad.names import TopicPartition
from kafkad.replica.partition import Role
from kafkad.security.quotas.clients import ClientQuotas
from kafkad.security.quotas.rate import Windows
from kafkad.wire.records import BatchHeader
from tests.fakes import FakeClock

PARTITIONS, GROUPS, POSITIONS = 10_000, 1_000, 50
LONGEST_S = 0.1
"""Of CPU time, which other processes do not change."""


class Replicas(list[Any]):
    parts = SimpleNamespace(clock=FakeClock())
    isr_shrinks = isr_expands = isr_failures = refused_count = 0


def log(segments: int = 5) -> Any:
    producers = ProducerStates(Snapshots("", Files()))
    return SimpleNamespace(size=1, start_offset=0, end_offset=7, segments=(None,) * segments, producers=producers)


def partition(number: int) -> Any:
    return SimpleNamespace(
        tp=TopicPartition(f"topic-{number // 10}", number % 10),
        log=log(),
        role=Role(leader=1, isr=(1,), replicas=(1,)),
        is_leader=True,
        following=None,
        min_isr=1,
        high_watermark=7,
        last_stable_offset=7,
        failure=None,
    )


def machine(number: int) -> Any:
    """One of fifty shards."""
    groups = [f"group-{number}-{each}" for each in range(GROUPS // 50)]
    offsets = [((f"topic-{each // 10}", each % 10), 3) for each in range(POSITIONS)]
    return SimpleNamespace(
        names=lambda: set(groups), groups={}, offsets=SimpleNamespace(offsets=lambda group: list(offsets))
    )


def scraped(collect: Callable[[], Iterable[Family | None]]) -> tuple[str, float]:
    """The text, and the longest that it took from one piece to the next."""
    registry = Registry()
    registry.add(collect)
    text, longest = [], 0.0
    gc.disable()  # a collection here would go through what all the other tests have left
    try:
        before = thread_time()
        for piece in registry.pieces():
            longest = max(longest, thread_time() - before)
            text.append(piece)
            before = thread_time()
    finally:
        gc.enable()
    return "".join(text), longest


def test_ten_thousand_partitions() -> None:
    replicas = Replicas(map(partition, range(PARTITIONS)))
    text, longest = scraped(lambda: partition_families(replicas, lambda: PARTITIONS, lambda: 900_000))  # type: ignore[arg-type]
    assert text.count("\nkafka_topic_partition_current_offset{") == PARTITIONS
    assert longest < LONGEST_S


def test_ten_thousand_logs() -> None:
    logs: Any = SimpleNamespace(logs={partition(number).tp: log(100) for number in range(PARTITIONS)})
    text, longest = scraped(lambda: log_families(logs, lambda: PARTITIONS))
    assert text.count("\nkafka_log_log_size{") == PARTITIONS
    assert longest < LONGEST_S


def test_the_partitions_of_a_whole_cluster() -> None:
    states = {number: SimpleNamespace(leader=number % 3 - 1, replicas=(0, 1)) for number in range(1_500)}
    topics = {"t": SimpleNamespace(name="t", partitions=states)}
    replicas: Any = SimpleNamespace(metadata=SimpleNamespace(topics=topics, brokers={}))
    controller: Any = SimpleNamespace(active=True, events_waiting=0, requests_waiting={}, unclean_elections=0)
    collected = list(_controller_families(replicas, controller))
    assert collected[:3] == [PAUSE, PAUSE, PAUSE]
    registry = Registry()
    registry.add(lambda: collected)
    text = registry.collect()
    assert "\nkafka_controller_kafkacontroller_offlinepartitionscount 500\n" in text
    assert "\nkafka_controller_kafkacontroller_preferredreplicaimbalancecount 1000\n" in text


def test_quotas_of_clients_that_are_made_up() -> None:
    clients = ClientQuotas({Entity(client=DEFAULT): {"producer_byte_rate": "1000"}}, Windows(), Windows())
    for number in range(1_200):
        budget = clients.of("u", f"client-{number}", 0)
        assert budget is not None and budget.produce is not None
        budget.produce.take(1, 0)
    in_force: Any = SimpleNamespace(clients=clients, _clock=SimpleNamespace(monotonic_ms=lambda: 1_000.0))
    collected = list(QuotasInForce.collect(in_force, with_users=True))
    assert collected[:2] == [PAUSE, PAUSE]
    families = {family.name: len(list(family.samples)) for family in collected if family is not None}
    assert families == {"kafka_server_quota_byte_rate": 1_200, "kafka_server_quota_throttle_time": 1_200}


def test_of_too_many_partitions_the_first_by_name_are_told() -> None:
    replicas = Replicas(map(partition, reversed(range(PARTITIONS))))
    text, longest = scraped(lambda: partition_families(replicas, lambda: 3, lambda: 900_000))  # type: ignore[arg-type]
    named = [
        line.partition(" ")[0] for line in text.splitlines() if line.startswith("kafka_cluster_partition_atminisr{")
    ]
    assert named == [f'kafka_cluster_partition_atminisr{{topic="topic-0",partition="{each}"}}' for each in range(3)]
    assert f"\nkafka_server_replicamanager_partitioncount {PARTITIONS}\n" in text
    assert f"\nkafkad_metrics_partitions_left_out {PARTITIONS - 3}\n" in text
    assert longest < LONGEST_S


def test_others_are_let_in_also_while_the_first_by_name_are_looked_for() -> None:
    partitions = list(map(partition, reversed(range(PARTITIONS))))
    logs: Any = SimpleNamespace(logs={each.tp: each.log for each in partitions})
    limit = PARTITIONS // 2
    of_logs = list(log_families(logs, lambda: limit))
    of_partitions = list(partition_families(Replicas(partitions), lambda: limit, lambda: 900_000))  # type: ignore[arg-type]
    looked, taken = PARTITIONS // READ_AT_ONCE, limit // READ_AT_ONCE
    assert of_logs.count(PAUSE) == looked + 2 * taken
    assert of_partitions.count(PAUSE) == 2 * looked + taken


def test_a_thousand_groups() -> None:
    machines = list(map(machine, range(50)))
    text, longest = scraped(lambda: lag_families(machines, lambda topic, partition: 7, GROUPS * POSITIONS))
    assert text.count("\nkafka_consumergroup_lag{") == GROUPS * POSITIONS
    assert text.count("\nkafka_consumergroup_lag_sum{") == GROUPS * POSITIONS // 10
    assert longest < LONGEST_S


def test_where_a_partition_ends_elsewhere_the_lag_is_not_known() -> None:
    text, _ = scraped(lambda: lag_families([machine(0)], lambda topic, partition: None, 1))
    assert 'kafka_consumergroup_current_offset{consumergroup="group-0-0",topic="topic-0",partition="0"} 3\n' in text
    assert "kafka_consumergroup_lag{" not in text


def test_transactions_that_nobody_ends_are_counted_with_their_partitions() -> None:
    replicas = Replicas(map(partition, range(3)))
    now_ms = replicas.parts.clock.now_ms()
    for number, age_ms in ((0, 0), (1, 1_300_000)):
        header = BatchHeader(0, 100, 0, 2, 0, 0x10, 0, 0, now_ms - age_ms, 7 + number, 0, 0, 1)
        replicas[number].log.producers.update(header, 0)
    text, _ = scraped(lambda: partition_families(replicas, lambda: 3, lambda: 900_000))  # type: ignore[arg-type]
    assert "\nkafka_server_replicamanager_partitionswithlatetransactionscount 1\n" in text
    assert "\nkafka_server_replicamanager_produceridcount 2\n" in text
