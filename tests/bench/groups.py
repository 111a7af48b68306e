"""Consumer groups in figures, kafkad beside real Kafka 3.9.

    python -m tests.bench.groups [--only TEXT] [--quick] [--without kafka|kafkad]

Exits 1 when a promise is not kept. Run nothing else meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kafkad.errors import ErrorCode
from kafkad.group.records import OffsetCommitted, encode
from kafkad.names import home_partition
from kafkad.wire.apis import response_class
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.messages.heartbeat import HeartbeatRequest
from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkad.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkad.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kafkad.wire.records import Record, build_batch
from kafkad.wire.schema import read
from tests.bench.compared import Measurement, Promise, Side, Values, main
from tests.bench.figures import create, new_topic
from tests.bench.measured import cpu_seconds
from tests.bench.members import Members
from tests.broker import RawClient
from tests.clients.probes import Asker

COMMITTERS = 16
PARTITIONS = 1000
OFFSETS_PARTITIONS = 50
LOADED_PARTITION = 7
GROUPS_LOADED = 1000
_ALWAYS_ZERO_AT = 5
"""The upper half of throttle_time_ms in an answer with tagged fields: for requests that carry no error code there."""
_HEARTBEAT_ERROR_AT = 9
_COMMIT, _HEARTBEAT, _METADATA = (8, 8), (12, 4), (3, 12)


def frame(api: tuple[int, int], message: Any) -> bytes:
    return encode_request(RequestHeader(*api, 1, "bench"), message)


def write_frames(side: Side, name: str, frames: Iterable[bytes]) -> Path:
    path = side.bench.directory / f"{name}.frames"
    path.write_bytes(b"".join(frames))
    return path


def find_coordinator(asker: Asker, group: str) -> None:
    """Until there is one, which creates `__consumer_offsets`."""
    while True:
        answer = asker.ask("FindCoordinator", 3, {"key": group, "key_type": 0})
        if not answer.error_code:
            return
        time.sleep(0.05)


def commit(group: str, topic: str, partitions: Iterable[int], offset: int = 1) -> OffsetCommitRequest:
    """Of a consumer that is not a member."""
    committed = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index in partitions
    ]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=committed)])


def exchange(client: RawClient, api: tuple[int, int], message: Any) -> Any:
    client.send(frame(api, message))
    answer = client.receive_frame()
    _, at = read_response_header(*api, answer)
    return read(response_class(api[0]), api[1], answer, at)[0]


def commit_until_taken(client: RawClient, message: OffsetCommitRequest) -> None:
    """Kafka names a coordinator before that broker knows that it is one."""
    while True:
        answer = exchange(client, _COMMIT, message)
        codes = {partition.error_code for topic in answer.topics for partition in topic.partitions}
        if codes == {ErrorCode.NONE}:
            return
        time.sleep(0.05)


# -- a thousand members


def members(side: Side) -> Values:
    count = round(1000 * side.bench.size)
    asker = Asker(side.port)
    create(asker, new_topic("t", count))
    find_coordinator(asker, "crowd")
    asker.client.close()
    group = Members(side.port, "crowd", "t", count)
    runner = asyncio.Runner()
    try:
        yield "1,000 members: until stable", runner.run(group.join())
        yield from heartbeats(side, group)
        yield "1,000 members: until stable when one has left", runner.run(group.one_leaves())
    finally:
        runner.run(group.close())
        runner.close()


def heartbeats(side: Side, group: Members) -> Values:
    """Each member's every three seconds, while others produce."""
    beats = [
        HeartbeatRequest(group_id=group.name, generation_id=member.generation, member_id=member.id)
        for member in group.members
    ]
    path = write_frames(side, "heartbeats", (frame(_HEARTBEAT, beat) for beat in beats))
    generator, seconds = side.bench.generator, 20 * side.bench.size
    produce = {"topic": "p", "recs": 1, "msg": 100, "conns": 4, "doze": 1, "rate": 10_000}
    generator.run("produce", side.port, **produce, n=20_000 * side.bench.size)
    with generator.begin("produce", side.port, **produce, secs=seconds + 1) as beside:
        beating = generator.run(
            "replay", side.port, file=path, conns=len(beats), inflight=1, doze=1, rate=len(beats) / 3,
            secs=seconds, error_at=_HEARTBEAT_ERROR_AT,
        )  # fmt: skip
        produced = beside.wait()
    yield "heartbeats beside 10,000 produces/s: p99", beating.p99 / 1000
    yield "produces/s beside them", produced.requests_s


# -- commits


def commits(side: Side) -> Values:
    asker = Asker(side.port)
    create(asker, new_topic("t"))
    groups = [f"committer-{i}" for i in range(COMMITTERS)]
    with RawClient(side.port) as client:
        for group in groups:
            find_coordinator(asker, group)
            commit_until_taken(client, commit(group, "t", [0]))
    asker.client.close()
    mark = 0x0123456789ABCDEF
    count_at = frame(_COMMIT, commit(groups[0], "t", [0], mark)).index(mark.to_bytes(8, "big"))
    groups = [group.ljust(len(groups[0]), "-") for group in groups]
    path = write_frames(side, "commits", (frame(_COMMIT, commit(group, "t", [0])) for group in groups))
    # correlation id, tags, throttle time, one topic with its name, one partition with its number
    options = {
        "file": path,
        "conns": COMMITTERS,
        "inflight": 1,
        "count_at": count_at,
        "error_at": 4 + 1 + 4 + 1 + 2 + 1 + 4,
    }
    for _ in range(2):  # the JIT settles
        side.bench.generator.run("replay", side.port, n=50_000 * side.bench.size, **options)
    before = cpu_seconds(side.pid)
    load = side.bench.generator.run("replay", side.port, n=150_000 * side.bench.size, **options)
    yield "commits/s from 16 connections", load.requests_s
    yield "broker CPU for a commit", (cpu_seconds(side.pid) - before) / load.requests * 1e6
    yield "commits: p99", load.p99 / 1000


def offset_fetch(side: Side) -> Values:
    asker = Asker(side.port)
    create(asker, new_topic("t", PARTITIONS))
    find_coordinator(asker, "g")
    asker.client.close()
    with RawClient(side.port, timeout=60) as client:
        commit_until_taken(client, commit("g", "t", range(PARTITIONS), 42))
        question = OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=list(range(PARTITIONS)))]
        )
        answer = exchange(client, (9, 7), question)
        assert {partition.committed_offset for partition in answer.topics[0].partitions} == {42}
    path = write_frames(side, "offset-fetch", [frame((9, 7), question)])
    options = {"file": path, "conns": 1, "inflight": 1, "error_at": _ALWAYS_ZERO_AT}
    side.bench.generator.run("replay", side.port, n=500, **options)
    load = side.bench.generator.run("replay", side.port, n=500, **options)
    yield "OffsetFetch of 1,000 partitions: p50", load.p50 / 1000


# -- loading


def loading_one_by_one(side: Side) -> Values:
    return loading(side, 1, "one a batch")


def loading_many(side: Side) -> Values:
    return loading(side, 500, "500 a batch")


def loading(side: Side, per_batch: int, name: str) -> Values:
    """A crash, a log of a million commits, and the time until the first of them is answered."""
    records = round(1_000_000 * side.bench.size)
    groups = list(itertools.islice(_groups_of_the_partition(), GROUPS_LOADED))
    path = side.bench.directory / f"offsets-{per_batch}-{records}"
    if not path.exists():
        write_offsets(path, groups, records, per_batch)
    asker = Asker(side.port)
    create(asker, new_topic("t", 10))
    for group in groups[:2]:
        find_coordinator(asker, group)
    asker.client.close()
    _wait_for_log(side)
    side.crash(functools.partial(_put_in_place, side, path))
    others = write_frames(side, "others", [frame(_METADATA, MetadataRequest(topics=[MetadataRequestTopic(name="t")]))])
    with side.bench.generator.begin(
        "replay", side.port, file=others, conns=1, rate=500, secs=120, doze=1, error_at=_ALWAYS_ZERO_AT
    ) as meanwhile:
        begin = time.perf_counter()
        refusals = _wait_until_loaded(side.port, groups[-1], (records // len(groups) // 10 * 10) or 10)
        took = time.perf_counter() - begin
        slowest = meanwhile.stop().slowest / 1000
    assert set(refusals) <= {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}, set(refusals)
    told = refusals.count(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    yield f"loading 1,000,000 offsets, {name}", took
    yield f"… refusals meanwhile that say so, {name}", 100 * told / len(refusals) if refusals else 100
    yield f"… slowest other request meanwhile, {name}", slowest


def _groups_of_the_partition() -> Iterator[str]:
    for number in itertools.count():
        if home_partition(f"load-{number}", OFFSETS_PARTITIONS) == LOADED_PARTITION:
            yield f"load-{number}"


def write_offsets(path: Path, groups: list[str], records: int, per_batch: int) -> None:
    """Commits of each group to ten partitions in turn; the number of the round is the offset."""
    now_ms = int(time.time() * 1000)
    with path.open("wb") as out:
        batch: list[Record] = []
        for number in range(records):
            turn, place = divmod(number, len(groups))
            group = groups[place]
            key, value = encode(OffsetCommitted(group, "t", turn % 10, turn // 10 + 1, 0, "", now_ms))
            batch.append(Record(number, now_ms, key, value))
            if len(batch) == per_batch or number == records - 1:
                out.write(build_batch(batch, leader_epoch=0))
                batch = []


def _wait_for_log(side: Side) -> None:
    while not _offsets_log(side).exists():
        time.sleep(0.05)


def _offsets_log(side: Side) -> Path:
    return side.log_directory() / f"__consumer_offsets-{LOADED_PARTITION}" / f"{0:020}.log"


def _put_in_place(side: Side, path: Path) -> None:
    log = _offsets_log(side)
    for index in (".index", ".timeindex"):
        log.with_suffix(index).unlink(missing_ok=True)
    log.write_bytes(path.read_bytes())


def _wait_until_loaded(port: int, group: str, expected: int) -> list[int]:
    """The error codes until then."""
    refusals = []
    question = OffsetFetchRequest(group_id=group, topics=None)
    with RawClient(port, timeout=120) as client:
        while True:
            answer = exchange(client, (9, 7), question)
            if not answer.error_code:
                break
            refusals.append(answer.error_code)
            time.sleep(0.01)
    found = sum(partition.committed_offset for topic in answer.topics for partition in topic.partitions)
    assert found == expected, f"{group} has {found} where {expected} was written"
    return refusals


def _promises_of_loading(name: str) -> list[Promise]:
    return [
        Promise(name=f"loading 1,000,000 offsets, {name}", unit="s", limit=6),
        Promise(name=f"… refusals meanwhile that say so, {name}", unit="%", limit=100, at_least=True),
        Promise(name=f"… slowest other request meanwhile, {name}", unit="ms", limit=20),
    ]


MEASUREMENTS = (
    Measurement(
        members,
        (
            Promise(name="1,000 members: until stable", unit="s", limit=5, ratio=1),
            Promise(name="heartbeats beside 10,000 produces/s: p99", unit="ms", limit=5),
            Promise(name="produces/s beside them", unit="/s", limit=9_900, at_least=True),
            Promise(name="1,000 members: until stable when one has left", unit="s", limit=2),
        ),
        {"group.initial.rebalance.delay.ms": "1000"},
    ),
    Measurement(
        commits,
        (
            Promise(name="commits/s from 16 connections", unit="/s", limit=15_000, at_least=True),
            Promise(name="broker CPU for a commit", unit="µs", ratio=2),
            Promise(name="commits: p99", unit="ms"),
        ),
    ),
    Measurement(offset_fetch, (Promise(name="OffsetFetch of 1,000 partitions: p50", unit="ms", limit=5),)),
    Measurement(loading_one_by_one, _promises_of_loading("one a batch")),
    Measurement(loading_many, _promises_of_loading("500 a batch")),
)

if __name__ == "__main__":
    main(__doc__, MEASUREMENTS)
