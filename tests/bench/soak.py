"""Does the broker keep what it should forget? Mixed load for half an hour, and memory, descriptors, threads meanwhile.

    python -m tests.bench.soak --minutes 30

Clients of many names come and go, with produces of all kinds (also those that a worker process looks into, and those
that are refused), consumers, groups, topics that are made and deleted, settings that change, admin requests, and
connections that break. Prints a row for each of some ninety moments, and ends with 1 when anything has grown in the
last two thirds.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer

from kafkad.errors import ErrorCode
from kafkad.wire.apis import response_class
from kafkad.wire.compression import Codec
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kafkad.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkad.wire.messages.delete_groups import DeleteGroupsRequest
from kafkad.wire.messages.delete_topics import DeleteTopicsRequest
from kafkad.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkad.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkad.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkad.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkad.wire.records import Record, build_batch
from kafkad.wire.schema import decode
from tests.bench.measured import private_mb
from tests.broker import KafkadProcess, RawClient

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT = 0, 1, 2, 3, 8
CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS, ALTER_CONFIGS, DELETE_GROUPS = 19, 20, 32, 33, 42
TOPIC_RESOURCE = 2
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.segment.bytes": "4194304",
    "log.retention.bytes": "8388608",
    "log.retention.check.interval.ms": "2000",
    "log.cleaner.backoff.ms": "2000",
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "3",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "5000",
    "group.initial.rebalance.delay.ms": "0",
    "producer.id.expiration.ms": "30000",
    "producer.id.expiration.check.interval.ms": "5000",
    "max.incremental.fetch.session.cache.slots": "100",
}
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "gzipped": {"compression.type": "gzip"},
    "compacted": {"cleanup.policy": "compact", "segment.ms": "3000", "min.cleanable.dirty.ratio": "0.1"},
    "synced": {"kafkad.acks.fsync": "true"},
}
PAUSE_S = 0.02
"""Between two rounds of a load: it is to last, not to be fast."""
SAMPLES = 90
ALLOWED_MB, ALLOWED_SHARE, ALLOWED_DESCRIPTORS, ALLOWED_THREADS = 3.0, 0.05, 8, 1
"""The most that the last sixth of the last two thirds may have above their first."""

_numbers = itertools.count(1)


class Sample(NamedTuple):
    second: float
    rss_mb: float
    own_mb: float
    """With its worker processes, and without what any of them shares."""
    descriptors: int
    threads: int


@dataclass
class Soak:
    """A running broker, and how often each load has done its round."""

    port: int
    done: Counter[str]
    failed: Counter[str]
    stop: threading.Event

    def connect(self) -> RawClient:
        return RawClient(self.port, timeout=30)


def ask(client: RawClient, key: int, version: int, request: Any, name: str = "soak") -> Any:
    client.send(encode_request(RequestHeader(key, version, 1, name), request))
    answer = client.receive_frame()
    _, at = read_response_header(key, version, answer)
    return decode(response_class(key), version, answer[at:])


def produce_request(topic: str, batch: bytes | bytearray, acks: int = -1) -> ProduceRequest:
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(batch))])]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=data)


def batch_of(count: int, codec: int = 0, **more: int) -> bytearray:
    now_ms = time.time_ns() // 1_000_000
    records = [Record(n, now_ms, b"key %d" % random.randrange(1000), random.randbytes(80)) for n in range(count)]
    return build_batch(records, codec=codec, **more)


def create(client: RawClient, name: str, settings: dict[str, str]) -> None:
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
    answer = ask(client, CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    assert answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


# -- loads: one round each ---------------------------------------------------------------------------------------------


def produce_everywhere(soak: Soak) -> None:
    """All topics in all codecs, by clients of new names, some of them long."""
    with soak.connect() as client:
        name = f"client {next(_numbers)} " + "x" * random.choice((0, 0, 200, 5000))
        for topic in TOPICS:
            for codec in Codec:
                for _ in range(2):
                    answer = ask(client, PRODUCE, 8, produce_request(topic, batch_of(20, codec)), name)
                    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def produce_by_worker(soak: Soak) -> None:
    """Many requests for another codec than the producer's: each waits for the worker process."""
    with soak.connect() as client:
        for _ in range(50):
            answer = ask(client, PRODUCE, 8, produce_request("gzipped", batch_of(5, Codec.LZ4)))
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def produce_large(soak: Soak) -> None:
    with soak.connect() as client:
        for codec in (Codec.NONE, Codec.ZSTD):
            ask(client, PRODUCE, 8, produce_request("plain", batch_of(5000, codec)))


def produce_lies(soak: Soak) -> None:
    with soak.connect() as client:
        for codec in Codec:
            lie = batch_of(3, codec, last_offset=6)
            answer = ask(client, PRODUCE, 8, produce_request("plain", lie))
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD


def produce_idempotently(soak: Soak) -> None:
    settings = {"bootstrap.servers": f"127.0.0.1:{soak.port}", "enable.idempotence": True, "linger.ms": 5}
    producer = Producer({**settings, "compression.type": random.choice(("none", "gzip", "lz4"))})
    for _ in range(300):
        producer.produce("plain", random.randbytes(200), key=b"k")
    assert producer.flush(30) == 0


def fetch(soak: Soak) -> None:
    """With a session that nobody ends."""
    with soak.connect() as client:
        for topic in TOPICS:
            partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50_000)
            topics = [FetchTopic(topic=topic, partitions=[partition])]
            ask(client, FETCH, 7, FetchRequest(max_wait_ms=10, min_bytes=1, session_epoch=0, topics=topics))


def join_group(soak: Soak) -> None:
    """A group that comes, reads, commits and goes; it is deleted, or expires."""
    group = f"group {next(_numbers)}"
    consumer = Consumer(
        {"bootstrap.servers": f"127.0.0.1:{soak.port}", "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["plain"])
    assert consumer.consume(100, 20)
    consumer.commit(asynchronous=False)
    consumer.close()
    if random.random() < 0.5:
        with soak.connect() as client:
            ask(client, DELETE_GROUPS, 1, DeleteGroupsRequest(groups_names=[group]))


def commit_alone(soak: Soak) -> None:
    with soak.connect() as client:
        for _ in range(20):
            group = f"alone {next(_numbers)} " + "y" * random.choice((0, 0, 0, 3000))
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
            topic = OffsetCommitRequestTopic(name="plain", partitions=[partition])
            request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic])
            answer = ask(client, OFFSET_COMMIT, 5, request)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
            ask(client, DELETE_GROUPS, 1, DeleteGroupsRequest(groups_names=[group]))


def make_and_delete(soak: Soak) -> None:
    """A topic of its own settings, written to by a client of its own."""
    name = f"passing-{next(_numbers)}"
    with soak.connect() as client:
        create(client, name, {"retention.ms": str(10_000_000 + next(_numbers))})
        end = time.monotonic() + 30
        while True:
            answer = ask(client, PRODUCE, 8, produce_request(name, batch_of(5)), f"client of {name}")
            if not answer.responses[0].partition_responses[0].error_code:
                break
            assert time.monotonic() < end
            time.sleep(0.02)
        ask(client, PRODUCE, 8, produce_request(name, batch_of(5)), f"client of {name}")
        answer = ask(client, DELETE_TOPICS, 3, DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000))
        assert answer.responses[0].error_code == ErrorCode.NONE


def administer(soak: Soak) -> None:
    with soak.connect() as client:
        resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="plain")
        ask(client, DESCRIBE_CONFIGS, 2, DescribeConfigsRequest(resources=[resource]))
        unknown = [MetadataRequestTopic(name=f"unknown-{next(_numbers)}") for _ in range(20)]
        ask(client, METADATA, 8, MetadataRequest(topics=unknown, allow_auto_topic_creation=False))
        ask(client, METADATA, 8, MetadataRequest(topics=None))
        partition = ListOffsetsPartition(partition_index=0, timestamp=time.time_ns() // 1_000_000 - 1000)
        topic = ListOffsetsTopic(name="plain", partitions=[partition])
        ask(client, LIST_OFFSETS, 4, ListOffsetsRequest(topics=[topic]))
        if random.random() < 0.9:
            return  # the note of a change stays for a quarter of an hour, as in Kafka
        config = AlterableConfig(name="retention.ms", value=str(600_000 + next(_numbers)))
        wanted = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="plain", configs=[config])
        answer = ask(client, ALTER_CONFIGS, 1, AlterConfigsRequest(resources=[wanted]))
        assert answer.responses[0].error_code == ErrorCode.NONE


def break_off(soak: Soak) -> None:
    """Connections that say nothing, half of something, or something that is no request."""
    for said in (b"", b"\0\0\x40\0" + b"half", b"\0\0\0\x08" + b"\xff" * 8):
        with soak.connect() as client:
            client.send(said)


LOADS: tuple[Callable[[Soak], None], ...] = (
    produce_everywhere,
    produce_by_worker,
    produce_large,
    produce_lies,
    produce_idempotently,
    fetch,
    join_group,
    commit_alone,
    make_and_delete,
    administer,
    break_off,
)


def work(soak: Soak, load: Callable[[Soak], None]) -> None:
    while not soak.stop.wait(PAUSE_S):
        try:
            load(soak)
            soak.done[load.__name__] += 1
        except Exception as error:
            if not soak.failed[load.__name__]:
                print(f"{load.__name__}: {error!r}", file=sys.stderr)
            soak.failed[load.__name__] += 1


# -- what is measured --------------------------------------------------------------------------------------------------


def sample(pid: int, second: float) -> Sample:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return Sample(second, int(status["VmRSS"].split()[0]) / 1024, private_mb(pid), descriptors, int(status["Threads"]))


def grown(samples: Sequence[Sample], slack: float = 1.0) -> list[str]:
    """The growth over the last two thirds, by the medians of their first and last sixth."""
    late = samples[len(samples) // 3 :]
    some = max(len(late) // 6, 1)
    found = []
    for column, least, share in (
        ("rss_mb", ALLOWED_MB, ALLOWED_SHARE),
        ("own_mb", ALLOWED_MB, ALLOWED_SHARE),
        ("descriptors", ALLOWED_DESCRIPTORS, 0.0),
        ("threads", ALLOWED_THREADS, 0.0),
    ):
        before = statistics.median(getattr(each, column) for each in late[:some])
        after = statistics.median(getattr(each, column) for each in late[-some:])
        if after - before > max(least, share * before) * slack:
            found.append(f"{column} grew from {before:.1f} to {after:.1f}")
    return found


def run(directory: Path, minutes: float, show: Callable[[Sample], None]) -> tuple[list[Sample], Soak]:
    with KafkadProcess(directory, SETTINGS) as kafkad:
        soak = Soak(kafkad.port, Counter(), Counter(), threading.Event())
        with soak.connect() as client:
            for name, settings in TOPICS.items():
                create(client, name, settings)
        threads = [threading.Thread(target=work, args=(soak, load), daemon=True) for load in LOADS]
        for thread in threads:
            thread.start()
        samples = []
        try:
            for each in _samples(kafkad.pid, minutes * 60):
                samples.append(each)
                show(each)
        finally:
            soak.stop.set()
            for thread in threads:
                thread.join(60)
        return samples, soak


def _samples(pid: int, seconds: float) -> Iterator[Sample]:
    begun = time.monotonic()
    for number in range(1, SAMPLES + 1):
        time.sleep(max(begun + number * seconds / SAMPLES - time.monotonic(), 0))
        yield sample(pid, time.monotonic() - begun)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    options = parser.parse_args()
    print(f"{'second':>8} {'RSS MB':>8} {'own MB':>8} {'files':>6} {'threads':>8}", flush=True)

    def show(each: Sample) -> None:
        cells = f"{each.second:8.0f} {each.rss_mb:8.1f} {each.own_mb:8.1f} {each.descriptors:6d} {each.threads:8d}"
        print(cells, flush=True)

    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        samples, soak = run(Path(directory), options.minutes, show)
    for load in LOADS:
        print(f"{load.__name__}: {soak.done[load.__name__]} rounds, {soak.failed[load.__name__]} failed")
    problems = grown(samples)
    problems += [f"{load.__name__} never worked" for load in LOADS if not soak.done[load.__name__]]
    print("; ".join(problems) or "nothing grew in the last two thirds")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
