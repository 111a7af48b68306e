from __future__ import annotations

import json

from kafkad.wire.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey
from kafkad.wire.messages.describe_quorum import ReplicaState, ResponsePartitionData
from kctl.cluster.features import rows_of as features
from kctl.cluster.mode import mode
from kctl.cluster.quorum import rows_of as quorum
from kctl.errors import Exit
from tests.kctl.conftest import Kctl


def test_modes() -> None:
    assert mode({55: (0, 2)}) == "kraft"
    assert mode({4: (0, 7)}) == "zookeeper"
    assert mode({3: (0, 12)}) == "embedded"


def test_describe(on_broker: Kctl) -> None:
    on_broker("topics", "create", "cluster-described", "-p", 2, "-r", 1, "-y")
    ran = on_broker("cluster", "describe")
    assert (ran.code, ran.err) == (Exit.DONE, "")
    assert ran.out.splitlines()[2:4] == ["brokers     1: 1", "racks       -"]
    (row,) = json.loads(on_broker("cluster", "describe", "-o", "json").out)["items"]
    assert f"version     {row['versions'][0]}, by the APIs\n" in ran.out
    assert (row["brokers"], row["down"], row["controller"], row["offline"]) == ([1], [], 1, 0)
    assert row["partitions"] >= row["topics"] >= 1


def test_controller(on_broker: Kctl) -> None:
    ran = on_broker("cluster", "controller", "-o", "name")
    assert (ran.code, ran.out) == (Exit.DONE, "1\n")


def test_no_quorum_and_no_zookeeper(on_broker: Kctl) -> None:
    ran = on_broker("cluster", "quorum")
    assert (ran.code, "no KRaft quorum" in ran.err) == (Exit.NOT_FOUND, True)
    ran = on_broker("cluster", "zk", "ls")
    assert (ran.code, "does not use ZooKeeper" in ran.err) == (Exit.NOT_FOUND, True)
    assert on_broker("cluster", "zk", "ls", "brokers").code == Exit.USAGE


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
