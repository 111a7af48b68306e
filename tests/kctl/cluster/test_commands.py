from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkad import __version__
from kafkad.wire.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey
from kafkad.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkad.wire.messages.describe_quorum import ReplicaState, ResponsePartitionData
from kafkad.wire.schema import Request
from kctl.cluster.features import rows_of as features
from kctl.cluster.mode import mode
from kctl.cluster.quorum import rows_of as quorum
from kctl.errors import Disconnected, Exit
from kctl.reach.session import Session
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl


def test_modes() -> None:
    assert mode({55: (0, 2)}, None) == "kraft"
    assert mode({4: (0, 7)}, None) == "zookeeper"
    assert mode({3: (0, 12)}, None) == "embedded"


def test_a_kafkad_says_itself_whether_it_has_a_zookeeper() -> None:
    """Several kafkads without one send each other what a controller on ZooKeeper sends."""
    assert mode({4: (0, 7)}, "") == "embedded"
    assert mode({4: (0, 7)}, "zk1:2181/kafka") == "zookeeper"


def test_describe(on_broker: Kctl) -> None:
    on_broker("topics", "create", "cluster-described", "-p", 2, "-r", 1, "-y")
    ran = on_broker("cluster", "describe")
    assert (ran.code, ran.err) == (Exit.DONE, "")
    assert ran.out.splitlines()[2:4] == ["brokers     1: 1", "racks       -"]
    (row,) = json.loads(on_broker("cluster", "describe", "-o", "json").out)["items"]
    assert f"version     kafkad {__version__}, with the APIs of Kafka {row['versions'][0]}\n" in ran.out
    assert (row["kafkad"], row["mode"]) == ([__version__], "embedded")
    assert (row["brokers"], row["down"], row["controller"], row["offline"]) == ([1], [], 1, 0)
    assert row["partitions"] >= row["topics"] >= 1


def test_controller(on_broker: Kctl) -> None:
    ran = on_broker("cluster", "controller", "-o", "name")
    assert (ran.code, ran.out) == (Exit.DONE, "1\n")


def test_no_quorum_and_no_path(on_broker: Kctl) -> None:
    ran = on_broker("cluster", "quorum")
    assert (ran.code, "no KRaft quorum" in ran.err) == (Exit.NOT_FOUND, True)
    assert on_broker("cluster", "zk", "ls", "brokers").code == Exit.USAGE


def test_metadata_of_a_kafkad_on_this_machine(
    on_broker: Kctl, kctl: Kctl, broker: KafkadProcess, tmp_path: Path
) -> None:
    """Of the running one that was asked, of any directory, of a copy, and of one that is torn: nothing is changed."""
    on_broker("topics", "create", "stored", "-p", 2, "-y")
    ran = on_broker("cluster", "zk", "get", "/brokers/topics/stored")
    assert (ran.code, json.loads(ran.out)["partitions"]) == (Exit.DONE, {"0": [1], "1": [1]})
    (id_row,) = json.loads(on_broker("cluster", "zk", "get", "/brokers/ids/1", "-o", "json").out)["items"]
    assert id_row["ephemeral"] is True
    names = [row["path"] for row in json.loads(on_broker("cluster", "zk", "ls", "-o", "json").out)["items"]]
    assert {"/brokers", "/config", "/consumers"} <= set(names)
    (journal,) = broker.log_dirs[0].glob("kafkad-metadata.journal")
    copied = shutil.copy(journal, tmp_path)
    with open(copied, "ab") as torn:
        torn.write(b"\xf0KdM half a frame")
    size = os.path.getsize(copied)
    for place in (journal.parent, tmp_path, copied):
        assert kctl("cluster", "zk", "ls", "/brokers/", "--data", place).out.split()[4] == "/brokers/ids"
    assert os.path.getsize(copied) == size
    ran = on_broker("cluster", "zk", "get", "/nobody")
    assert (ran.code, "no /nobody" in ran.err) == (Exit.NOT_FOUND, True)


def test_metadata_that_is_not_there_or_damaged(kctl: Kctl, broker: KafkadProcess, tmp_path: Path) -> None:
    ran = kctl("cluster", "zk", "ls", "--data", tmp_path)
    assert (ran.code, "kafkad-metadata.journal" in ran.err) == (Exit.NOT_FOUND, True)
    (tmp_path / "kafkad-metadata.journal").write_bytes(b"something else")
    ran = kctl("cluster", "zk", "ls", "--data", tmp_path)
    assert (ran.code, "is not a kafkad metadata journal" in ran.err) == (Exit.FINDINGS, True)
    assert kctl("cluster", "zk", "ls", "--data", tmp_path, "--zookeeper", "x:1").code == Exit.USAGE


def test_zookeeper_that_is_not_there(on_broker: Kctl) -> None:
    ran = on_broker("cluster", "zk", "ls", "--zookeeper", "127.0.0.1:1", "--timeout", "200ms")
    assert (ran.code, "ZooKeeper at 127.0.0.1:1 does not answer" in ran.err) == (Exit.UNREACHABLE, True)


def test_features() -> None:
    def answer(epoch: int, level: int, **ranges: tuple[int, int]) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            supported_features=[
                SupportedFeatureKey(name=name, min_version=first, max_version=last)
                for name, (first, last) in ranges.items()
            ],
            finalized_features_epoch=epoch,
            finalized_features=[FinalizedFeatureKey(name="a", max_version_level=level, min_version_level=level)],
        )

    assert features({1: answer(5, 3, a=(1, 7), b=(0, 1)), 2: answer(6, 4, a=(2, 5))}) == [
        {"feature": "a", "level": 4, "first": 2, "last": 5, "brokers": [1, 2]},
        {"feature": "b", "level": None, "first": None, "last": None, "brokers": [1]},
    ]


def test_features_of_kafkad(on_broker: Kctl) -> None:
    assert on_broker("cluster", "features").code == Exit.DONE


def test_quorum() -> None:
    partition = ResponsePartitionData(
        leader_id=2,
        leader_epoch=9,
        high_watermark=98,
        current_voters=[
            ReplicaState(replica_id=1, log_end_offset=90, last_fetch_timestamp=500, last_caught_up_timestamp=-1),
            ReplicaState(replica_id=2, log_end_offset=100, last_fetch_timestamp=1100, last_caught_up_timestamp=1000),
        ],
        observers=[ReplicaState(replica_id=3, log_end_offset=100)],
    )
    rows = quorum(partition, 1000)
    assert [(row["id"], row["role"], row["lag"]) for row in rows] == [
        (1, "voter", 10),
        (2, "leader", 0),
        (3, "observer", 0),
    ]
    assert [(row["since_fetch_ms"], row["since_caught_up_ms"]) for row in rows] == [(500, None), (0, 0), (None, None)]


def test_nothing_is_claimed_of_brokers_that_do_not_answer(
    on_broker: Kctl, broker: KafkadProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_broker("topics", "create", "cluster-hung", "-p", 2, "-r", 1, "-y")
    hung = Disconnected("broker 1 at h:1 did not answer in time")
    real = Session.call_each

    def call_each(session: Session, requests: Mapping[int, Request[Any]]) -> dict[int, Any]:
        if any(isinstance(request, DescribeLogDirsRequest) for request in requests.values()):
            return dict.fromkeys(requests, hung)
        return real(session, requests)

    monkeypatch.setattr(Session, "call_each", call_each)
    out = on_broker("cluster", "describe").out
    assert " unreachable\n" in out and "size        -, - free\n" in out
    (row,) = json.loads(on_broker("cluster", "describe", "-o", "json").out)["items"]
    assert row["unreachable"] >= 2 and (row["silent"], row["size_bytes"], row["free_bytes"]) == ([1], None, None)
    assert on_broker("topics", "list", "cluster-hung").out.splitlines()[-1].endswith("; 1 unhealthy")
    assert "health  2 unreachable: broker 1 does not answer" in on_broker("topics", "describe", "cluster-hung").out
    listed = on_broker("partitions", "list", "cluster-hung", "--unhealthy").out
    assert listed.splitlines()[-1] == "2 partitions, -; 2 unhealthy"
