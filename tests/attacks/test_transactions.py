"""Transactions of a size, or in a number, that no honest client has."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.wire.apis import request_class
from kafkad.wire.frames import RequestHeader, encode_request
from tests.attacks.attacks import create
from tests.attacks.honest import TOPIC
from tests.broker import RawClient
from tests.clients.asker import KEYS, Plain, from_plain
from tests.txn.raw import Raw, Tp

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

PARTITIONS = 2_000
LARGE = [("large", index) for index in range(PARTITIONS)]
_IN_FLIGHT = 200


@contextlib.contextmanager
def raw(port: int) -> Iterator[Raw]:
    client = Raw(port)
    with contextlib.closing(client):
        yield client


def frame(api: str, version: int, question: Plain) -> bytes:
    key = KEYS[api]
    return encode_request(RequestHeader(key, version, 1, "attacker"), from_plain(request_class(key), question, version))


def many(port: int, frames: Sequence[bytes]) -> list[bytes]:
    """One connection asks all, many at a time; the answers."""
    answers = []
    with RawClient(port, timeout=60) as client:
        for at in range(0, len(frames), _IN_FLIGHT):
            some = frames[at : at + _IN_FLIGHT]
            client.send(b"".join(some))
            answers += [client.receive_frame() for _ in some]
    return answers


def prepare_large(port: int) -> None:
    create(port, "large", PARTITIONS)
    ready(port)


def ready(port: int) -> None:
    """Transactions and groups have coordinators."""
    with raw(port) as client:
        client.coordinator(["any"], 1)
        client.coordinator(["any"], 0)
        client.new("first")


def test_two_thousand_partitions_in_one(suffer: Callable[..., None]) -> None:
    def attack(port: int) -> None:
        with raw(port) as client:
            client.know("large")
            pid, epoch = client.new("wide")
            for number in range(2):
                assert set(client.add("wide", pid, epoch, LARGE).values()) == {0}
                sent = client.produce("wide", {tp: client.batch(pid, epoch, number) for tp in LARGE})
                assert {error for error, _ in sent.values()} == {0}
                assert client.end("wide", pid, epoch, commit=not number).error_code == 0
                assert client.settled("wide").transaction_state.startswith("Complete")
            pid, epoch = client.new("wide")
            sent = client.produce("wide", {tp: client.batch(pid, epoch, 0) for tp in LARGE}, version=12)
            assert {error for error, _ in sent.values()} == {0}
            assert client.end("wide", pid, epoch, version=5).error_code == 0
            assert client.settled("wide").transaction_state == "CompleteCommit"

    suffer("Transactions of 2,000 partitions", attack, prepare_large)


def initialisation(name: str, timeout_ms: int) -> bytes:
    asked = {"transactional_id": name, "transaction_timeout_ms": timeout_ms, "producer_id": -1, "producer_epoch": -1}
    return frame("InitProducerId", 4, asked)


def addition(name: str, pid: int, epoch: int, partitions: Sequence[int]) -> bytes:
    return frame(
        "AddPartitionsToTxn",
        3,
        {
            "v3_and_below_transactional_id": name,
            "v3_and_below_producer_id": pid,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": list(partitions)}],
        },
    )


def open_many(port: int, names: Sequence[str], timeout_ms: int) -> None:
    given = many(port, [initialisation(name, timeout_ms) for name in names])
    producers = [(int.from_bytes(one[11:19]), int.from_bytes(one[19:21])) for one in given]
    many(port, [addition(name, *one, [0]) for name, one in zip(names, producers, strict=True)])


def open_now(client: Raw) -> int:
    return len(client.ask("ListTransactions", 0, {"state_filters": ["Ongoing"]}).transaction_states)


@pytest.mark.parametrize(
    ("count", "seconds"),
    [pytest.param(3_000, 6, id="3000"), pytest.param(20_000, 40, id="20000", marks=pytest.mark.long)],
)
def test_time_outs_in_the_same_moment(suffer: Callable[..., None], count: int, seconds: int) -> None:
    """Their time-outs are as different as their beginnings."""

    def attack(port: int) -> None:
        end = time.monotonic() + seconds
        names = [f"late-{number}" for number in range(count)]
        for at in range(0, count, _IN_FLIGHT):
            open_many(port, names[at : at + _IN_FLIGHT], max(int((end - time.monotonic()) * 1000), 1))
        with raw(port) as client:
            time.sleep(max(end - time.monotonic(), 0))
            while open_now(client):
                time.sleep(0.1)

    suffer(f"{count:,} transactions time out in the same moment", attack, ready)


@pytest.mark.parametrize(
    ("what", "count"),
    [
        ("the same partition", 19_900),
        ("partitions that are not there", 19_900),
        ("partitions that are not there", 200_000),  # refused, whatever they are
        pytest.param("the same partition", 200_000, marks=pytest.mark.long),
    ],
)
def test_additions(suffer: Callable[..., None], what: str, count: int) -> None:
    def attack(port: int) -> None:
        with raw(port) as client:
            pid, epoch = client.new("greedy")
        indexes = [0] * count if what == "the same partition" else list(range(count))
        asked = addition("greedy", pid, epoch, indexes)
        for _ in range(5):
            with contextlib.suppress(ConnectionError):  # too large a request is not read
                many(port, [asked])

    suffer(f"AddPartitionsToTxn of {count:,}, {what}", attack, ready)


@pytest.mark.parametrize("count", [18_000, 100_000])
def test_offsets(suffer: Callable[..., None], count: int) -> None:
    def attack(port: int) -> None:
        with raw(port) as client:
            pid, epoch = client.new("committer")
            assert client.add_offsets("committer", pid, epoch, "group") == 0
            partitions = [
                {
                    "partition_index": number % PARTITIONS,
                    "committed_offset": number,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
                for number in range(count)
            ]
            asked = {
                "transactional_id": "committer",
                "group_id": "group",
                "producer_id": pid,
                "producer_epoch": epoch,
                "generation_id": -1,
                "member_id": "",
                "group_instance_id": None,
                "topics": [{"name": "large", "partitions": partitions}],
            }
            for _ in range(5):
                with contextlib.suppress(ConnectionError):
                    many(port, [frame("TxnOffsetCommit", 3, asked)])
            assert client.end("committer", pid, epoch).error_code == 0

    suffer(f"TxnOffsetCommit of {count:,}", attack, prepare_large)


@pytest.mark.parametrize(
    ("topic", "count"),
    [
        *((topic, 19_900) for topic in (TOPIC, "large", "__consumer_offsets")),
        (TOPIC, 50_000),  # refused, whatever the topic
        *(pytest.param(topic, 50_000, marks=pytest.mark.long) for topic in ("large", "__consumer_offsets")),
    ],
)
def test_markers(suffer: Callable[..., None], topic: str, count: int) -> None:
    partitions: list[Tp] = [(topic, number % (PARTITIONS if topic == "large" else 1)) for number in range(count)]

    def attack(port: int) -> None:
        with raw(port) as client, contextlib.suppress(ConnectionError):
            for number in range(3):
                client.markers([(9_000 + number, 0, True, partitions, 0)])

    suffer(f"WriteTxnMarkers of {count:,} to {topic}", attack, prepare_large if topic == "large" else ready)


NASTY = ["(a*)*b", "(a|aa)+$", "((a?){40}){40}", "([a-z]*[a-z]*[a-z]*)*!", "(.*.*.*.*)*x"]


@pytest.mark.parametrize("length", [10, 30_000])
def test_patterns(suffer: Callable[..., None], length: int) -> None:
    def prepare(port: int) -> None:
        ready(port)
        many(
            port,
            [initialisation("a" * length + str(number), 60_000) for number in range(2_000 if length < 99 else 100)],
        )

    def attack(port: int) -> None:
        filters: dict[str, Any] = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
        with raw(port) as client:
            for pattern in NASTY:
                client.ask("ListTransactions", 2, {**filters, "transactional_id_pattern": pattern})

    suffer(f"ListTransactions, names of {length:,}", attack, prepare)


def test_producers_that_fence_each_other(suffer: Callable[..., None]) -> None:
    """Sixteen have the same id, and each begins again as soon as it is fenced."""

    def fight(port: int, until: float) -> None:
        with raw(port) as client:
            while time.monotonic() < until:
                given = client.init("shared", wait=False)
                if not given.error_code:
                    client.add("shared", given.producer_id, given.producer_epoch, [(TOPIC, 0)], wait=False)
                    client.produce_one("shared", given.producer_id, given.producer_epoch, 0, (TOPIC, 0))
                    client.end("shared", given.producer_id, given.producer_epoch)

    def attack(port: int) -> None:
        until = time.monotonic() + 3
        fighters = [threading.Thread(target=partial(fight, port, until)) for _ in range(16)]
        for one in fighters:
            one.start()
        for one in fighters:
            one.join()
        with raw(port) as client:
            assert client.settled("shared").error_code == ErrorCode.NONE
            client.new("shared")

    suffer("16 producers with one transactional id", attack, ready)


def test_produce_to_many_partitions(suffer: Callable[..., None]) -> None:
    """In one transaction, which nobody has begun."""

    def attack(port: int) -> None:
        with raw(port) as client:
            pid, epoch = client.new("wide")
            batch = client.batch(pid, epoch, 0)
            partitions = [{"index": number, "records": batch} for number in range(19_900)]
            data = {"topic_data": [{"name": "large", "partition_data": partitions}]}
            for tid in ("wide", None):
                asked = frame("Produce", 9, {"transactional_id": tid, "acks": -1, "timeout_ms": 10_000, **data})
                many(port, [asked])

    suffer("Produce to 19,900 partitions in a transaction", attack, prepare_large)
