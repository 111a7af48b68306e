"""A member of a consumer group as a process of its own, which a test can kill: it says in JSON lines what it does.

    python -m tests.clients.consuming LIBRARY BOOTSTRAP GROUP TOPIC NAME STRATEGY COMMITS INSTANCE SESSION_MS

COMMITS is sync or async (after every poll) or auto. INSTANCE is the id of a static member, or empty. SIGTERM makes it
leave. What it says: `assigned`, `revoked` and `lost` with partitions, `processed` with a partition and the records'
offsets and values, before they are committed, and `leaving`; each with the machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

QUICKLY_MS = 300
"""Between heartbeats, and between automatic commits."""


POLL_MS = 30_000


class Arguments(NamedTuple):
    bootstrap: str
    group: str
    topic: str
    name: str
    strategy: str
    commits: str
    instance: str
    session_ms: int


def say(event: str, **more: object) -> None:
    print(json.dumps({"event": event, "at": time.monotonic(), **more}), flush=True)


def say_partitions(event: str, partitions: Iterable[Any]) -> None:
    say(event, partitions=sorted(p.partition for p in partitions))


def say_processed(partition: int, records: Iterable[tuple[int, bytes]]) -> None:
    say("processed", partition=partition, records=[[offset, value.decode()] for offset, value in records])


def with_confluent(asked: Arguments, leave: threading.Event) -> None:
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {"bootstrap.servers": asked.bootstrap, "group.id": asked.group, "client.id": asked.name,
         "partition.assignment.strategy": asked.strategy, "session.timeout.ms": asked.session_ms,
         "heartbeat.interval.ms": QUICKLY_MS, "group.instance.id": asked.instance,
         "enable.auto.commit": asked.commits == "auto", "auto.commit.interval.ms": QUICKLY_MS,
         "auto.offset.reset": "earliest", "log_level": 0}
    )  # fmt: skip
    consumer.subscribe(
        [asked.topic],
        on_assign=lambda _, partitions: say_partitions("assigned", partitions),
        on_revoke=lambda _, partitions: say_partitions("revoked", partitions),
        on_lost=lambda _, partitions: say_partitions("lost", partitions),
    )
    while not leave.is_set():
        message = consumer.poll(0.1)
        if message is None or message.error():
            continue
        say_processed(message.partition(), [(message.offset(), message.value())])
        if asked.commits != "auto":
            with contextlib.suppress(KafkaException):  # in a rebalance: who gets the partition processes it again
                consumer.commit(message, asynchronous=asked.commits == "async")
    say("leaving")
    consumer.close()


def with_kafka_python(asked: Arguments, leave: threading.Event) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaError

    assignors = (
        RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor,
    )  # fmt: skip

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            say_partitions("assigned", assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            say_partitions("revoked", revoked)

        def on_partitions_lost(self, lost: Any) -> None:
            say_partitions("lost", lost)

    consumer = KafkaConsumer(
        bootstrap_servers=asked.bootstrap, group_id=asked.group, client_id=asked.name,
        group_instance_id=asked.instance or None,
        partition_assignment_strategy=[a for a in assignors if a.name == asked.strategy],
        session_timeout_ms=asked.session_ms, heartbeat_interval_ms=QUICKLY_MS,
        enable_auto_commit=asked.commits == "auto", auto_commit_interval_ms=QUICKLY_MS,
        auto_offset_reset="earliest", max_poll_records=20,
    )  # fmt: skip
    consumer.subscribe([asked.topic], listener=Listener())
    while not leave.is_set():
        _process(_poll_long(consumer, leave))
        with contextlib.suppress(KafkaError):
            if asked.commits == "sync":
                consumer.commit()
            elif asked.commits == "async":
                consumer.commit_async()
    say("leaving")
    consumer.close()


class Interrupted(Exception):
    """The signal came while nothing was to be done."""


def _poll_long(consumer: Any, leave: threading.Event) -> Mapping[Any, Any]:
    """kafka-python 3.0 loses its assignment for good when a poll ends while it waits for it: so none may end early."""

    def interrupt(*_: object) -> None:
        leave.set()
        raise Interrupted

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        return consumer.poll(POLL_MS)  # type: ignore[no-any-return]
    except Interrupted:
        return {}
    finally:
        signal.signal(signal.SIGTERM, before)


def _process(polled: Mapping[Any, Any]) -> None:
    for partition, records in polled.items():
        say_processed(partition.partition, [(record.offset, record.value) for record in records])


async def with_aiokafka(asked: Arguments, leave: threading.Event) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    assignors = (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            say_partitions("assigned", assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            say_partitions("revoked", revoked)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=asked.bootstrap, group_id=asked.group, client_id=asked.name,
        group_instance_id=asked.instance or None,
        partition_assignment_strategy=[a for a in assignors if a.name == asked.strategy],
        session_timeout_ms=asked.session_ms, heartbeat_interval_ms=QUICKLY_MS,
        enable_auto_commit=asked.commits == "auto", auto_commit_interval_ms=QUICKLY_MS,
        auto_offset_reset="earliest", max_poll_records=20,
    )  # fmt: skip
    consumer.subscribe([asked.topic], listener=Listener())
    await consumer.start()
    commits: set[asyncio.Task[None]] = set()
    while not leave.is_set():
        polled = await consumer.getmany(timeout_ms=100)
        _process(polled)
        if polled and asked.commits != "auto":
            commit = asyncio.ensure_future(_suppressing(KafkaError, consumer.commit()))
            commits.add(commit)
            commit.add_done_callback(commits.discard)
            if asked.commits == "sync":
                await commit
    say("leaving")
    await asyncio.gather(*commits)
    await consumer.stop()


async def _suppressing(error: type[Exception], commit: Any) -> None:
    with contextlib.suppress(error):
        await commit


def main() -> None:
    library, *words, session_ms = sys.argv[1:]
    asked = Arguments(*words, int(session_ms))  # type: ignore[call-arg]
    leave = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leave.set())
    if library == "aiokafka":
        asyncio.run(with_aiokafka(asked, leave))
    else:
        {"confluent-kafka": with_confluent, "kafka-python": with_kafka_python}[library](asked, leave)


if __name__ == "__main__":
    main()
