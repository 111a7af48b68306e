"""Partitions of `__consumer_offsets` that Kafka 3.9.2 wrote, loaded: the state that Kafka's own dump of them tells."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkad.config import LogConfig
from kafkad.group.group import GroupSettings
from kafkad.group.machine import GroupMachine
from kafkad.log.files import Files
from kafkad.log.log import Log
from kafkad.names import TopicPartition
from kafkad.shard.loading import Loader
from kafkad.timers import Timers
from tests.fakes import FakeClock

LOGS = Path(__file__).parent.parent / "golden" / "logs"
SETTINGS = GroupSettings(
    rebalance_delay_ms=0, min_session_timeout_ms=6_000, max_session_timeout_ms=1_800_000, max_size=2**31 - 1
)
PRODUCER = re.compile(r"producerId: (-?\d+) .* isTransactional: (true|false)")
RECORD = re.compile(r"\| offset: .*? key: (\{.*?\}\}) payload: (<DELETE>|\{.*\})$")
MARKER = re.compile(r"\| offset: .* endTxnMarker: (COMMIT|ABORT)")

Fields = dict[str, Any]


def dumped(partition: str) -> Iterator[tuple[str, Fields, Any]]:
    """("", key, payload) of a record, ("end", producer, whether committed) of a marker, with the producer in the key
    of what is transactional."""
    [dump] = (LOGS / "expected" / "main" / partition).glob("*.log.txt")
    producer, transactional = -1, False
    for line in dump.read_text().splitlines():
        if found := PRODUCER.search(line):
            producer, transactional = int(found[1]), found[2] == "true"
        if found := MARKER.match(line):
            yield "end", {"producer": producer}, found[1] == "COMMIT"
        if found := RECORD.match(line):
            key, payload = json.loads(found[1]), json.loads(found[2].replace("<DELETE>", "null"))
            yield key["type"], {**key["data"], "producer": producer if transactional else -1}, payload


def state_in_the_dump(partition: str) -> tuple[dict[tuple[str, str, int], Fields], dict[str, Fields]]:
    offsets: dict[tuple[str, str, int], Fields] = {}
    groups: dict[str, Fields] = {}
    pending: dict[int, list[tuple[tuple[str, str, int], Fields]]] = {}
    for kind, key, payload in dumped(partition):
        if kind == "end":
            ended = pending.pop(key["producer"], [])
            offsets |= dict(ended) if payload else {}
        elif kind == "2":
            groups.pop(key["group"], None)
            if payload is not None:
                groups[key["group"]] = payload["data"]
        else:
            position = (key["group"], key["topic"], key["partition"])
            if key["producer"] >= 0:
                pending.setdefault(key["producer"], []).append((position, payload["data"]))
            elif payload is None:
                offsets.pop(position, None)
            else:
                offsets[position] = payload["data"]
    return offsets, groups


@pytest.mark.parametrize("number", range(3))
def test_what_kafka_wrote_is_loaded(tmp_path: Path, number: int) -> None:
    partition = f"__consumer_offsets-{number}"
    shutil.copytree(LOGS / "main" / partition, tmp_path / partition)
    log = Log.open(
        str(tmp_path / partition),
        LogConfig(cleanup_policy=frozenset({"compact"})),
        Files(),
        FakeClock(),
        topic_partition=TopicPartition("__consumer_offsets", number),
        clean=False,
    )
    machine = GroupMachine(
        lambda records, on_end: None,
        lambda records, on_end: None,
        clock=FakeClock(),
        timers=Timers(),
        soon=lambda call: None,
        later=lambda call: None,
        most_bytes=lambda: 1_000_000,
        settings=SETTINGS,
    )
    loader = Loader(log, machine, lambda: True)
    asyncio.run(loader.run())
    offsets, groups = state_in_the_dump(partition)
    assert offsets
    assert not loader.damaged
    found = {
        (group, *position): {
            "offset": committed.offset,
            "leaderEpoch": committed.leader_epoch,
            "metadata": committed.metadata,
            "commitTimestamp": committed.commit_timestamp,
        }
        for group in machine.offsets.groups()
        for position, committed in machine.offsets.of_group(group)
    }
    assert found == offsets
    assert {
        name: (group.protocol_type, group.generation, group.protocol, group.state_timestamp)
        for name, group in machine.groups.items()
    } == {
        name: (said["protocolType"], said["generation"], said["protocol"], said["currentStateTimestamp"])
        for name, said in groups.items()
    }
    log.close()
