"""What lies in the log directories and not in the metadata store: adopted, or a reason not to start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkad.broker.takeover import pass_over_known_producers
from kafkad.config import LogConfig
from kafkad.config import load as load_config
from kafkad.controller.registration import prepare
from kafkad.log.manager import LogManager
from kafkad.meta.embedded import EmbeddedSession, EmbeddedStore
from kafkad.meta.znodes import ProducerIdBlock
from kafkad.names import TopicPartition
from kafkad.wire.records import BATCH_HEADER, Record, build_batch
from tests.fakes import FakeClock
from tests.one_broker import CLUSTER_ID, NoSync

BROKER = 1
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
A, B = b"A" * 16, b"B" * 16
CONFIG = load_config(None, [], {})


def new_store() -> EmbeddedSession:
    session = EmbeddedStore.in_memory(FakeClock()).session()
    asyncio.run(prepare(session))
    return session


@contextmanager
def logs_in(*directories: Path, clock: FakeClock | None = None) -> Iterator[LogManager]:
    logs = LogManager([str(directory) for directory in directories], NoSync(), clock or FakeClock())
    logs.lock()
    logs.claim(CLUSTER_ID, BROKER)
    logs.load(lambda topic: LogConfig())
    try:
        yield logs
    finally:
        logs.close()


def append(logs: LogManager, tp: TopicPartition, topic_id: bytes, epoch: int = 0, producer_id: int = -1) -> None:
    number = 0 if producer_id >= 0 else -1
    batch = build_batch(
        [Record(0, 1_700_000_000_000, None, b"v")],
        producer_id=producer_id,
        producer_epoch=number,
        base_sequence=number,
    )
    view = memoryview(batch)
    logs.create(tp, topic_id, LogConfig()).append(view, 0, len(view), BATCH_HEADER.unpack_from(view), epoch)


@pytest.mark.parametrize(
    ("known", "given_out", "follows"),
    [
        ([7], 999, 1000),
        ([7, 1000], 999, 5_000_000),
        ([4_999_999], 999, 5_000_000),
        ([5_000_000, 2**63 - 1], 999, 1000),
        ([7_000_000], 6_999_999, 7_000_000),
    ],
)
def test_producer_ids_that_logs_know_are_not_given_out_again(
    tmp_path: Path, known: Sequence[int], given_out: int, follows: int
) -> None:
    store = new_store()
    asyncio.run(store.set(ProducerIdBlock.path(), ProducerIdBlock(BROKER, given_out - 999, given_out).encode()))
    with logs_in(tmp_path, clock=FakeClock(5_000_123)) as logs:
        for producer_id in known:
            append(logs, A0, A, producer_id=producer_id)
        asyncio.run(pass_over_known_producers(store, BROKER, logs))
    block = ProducerIdBlock.decode(asyncio.run(store.get(ProducerIdBlock.path()))[0])
    assert block is not None
    assert block.last + 1 == follows
