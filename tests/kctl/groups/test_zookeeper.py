"""Groups of consumers before Kafka 0.9, as kctl shows and moves them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kafkad.meta.consumer_znodes import Consumer, ConsumerOffset, Owner
from kctl.cluster.nodes import StoredNode
from kctl.errors import Exit
from kctl.groups.zookeeper import rows_of
from tests.broker import KafkadProcess, free_port
from tests.clients.asker import Asker
from tests.kctl.conftest import Kctl
from tests.oracle.kafka import missing, zookeeper


class Nodes:
    """A store with these nodes, and those above them."""

    def __init__(self, nodes: dict[str, bytes]) -> None:
        self.nodes = nodes

    def node(self, path: str) -> StoredNode | None:
        return StoredNode(self.nodes[path], 0, 0, False) if path in self.nodes else None

    def children(self, path: str) -> list[str] | None:
        below = {each.removeprefix(path + "/").split("/")[0] for each in self.nodes if each.startswith(path + "/")}
        return sorted(below) or None


def test_offsets_owners_and_members() -> None:
    store = Nodes(
        {
            ConsumerOffset.path("g", "t", 0): ConsumerOffset.encode(7),
            ConsumerOffset.path("g", "t", 10): ConsumerOffset.encode(8),
            Owner.path("g", "t", 10): Owner.encode("g_host-1-ab", 0),
            Owner.path("g", "u", 0): Owner.encode("g_host-1-ab", 1),
            Consumer.path("g", "g_host-1-ab"): Consumer({"t": 1, "u": 1}, "static", 5).encode(),
        }
    )
    rows = list(rows_of(store, "g"))
    assert [(row["topic"], row["partition"], row["offset"], row["owner"]) for row in rows] == [
        ("t", 0, 7, None),
        ("t", 10, 8, "g_host-1-ab"),
        ("u", 0, None, "g_host-1-ab"),
    ]
    assert all(row["members"] == ["g_host-1-ab: t,u"] for row in rows)


def test_nodes_that_somebody_else_wrote() -> None:
    store = Nodes(
        {
            "/consumers/g/offsets/t/0": b"many",
            "/consumers/g/offsets/t/lock": b"1",
            "/consumers/g/owners/t/0": b"me",
            "/consumers/g/ids/m": b"[]",
        }
    )
    (row,) = rows_of(store, "g")
    assert (row["partition"], row["offset"], row["owner"], row["members"]) == (0, None, "me", ["m: []"])
    (row,) = rows_of(Nodes({"/consumers/h/ids": b""}), "h")
    assert (row["group"], row["topic"], row["members"]) == ("h", None, [])


@pytest.mark.parametrize("running", [True, False])
def test_group_of_offset_commit_v0_is_shown_and_moved(
    on_broker: Kctl, kctl: Kctl, broker: KafkadProcess, tmp_path: Path, running: bool
) -> None:
    """Read from the running broker's own metadata, and from a directory; moved as the command's help says."""
    name = f"old-{running}"
    on_broker("topics", "create", name, "-p", 2, "-y")
    for partition in (0, 1):
        on_broker("produce", name, "--value", "x", "--partition", partition)
    asker = Asker(broker.port)
    partitions = [{"partition_index": at, "committed_offset": at, "committed_metadata": ""} for at in (0, 1)]
    asker.ask("OffsetCommit", 0, {"group_id": name, "topics": [{"name": name, "partitions": partitions}]})
    asker.client.close()
    assert name not in on_broker("groups", "list").out
    words = () if running else ("--data", broker.log_dirs[0])
    ran = (on_broker if running else kctl)("groups", "zookeeper", name, "-o", "json", *words)
    rows = json.loads(ran.out)["items"]
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [(name, 0, 0), (name, 1, 1)]
    file = tmp_path / "old.json"
    file.write_text(ran.out)
    assert on_broker("groups", "reset-offsets", name, "--from-file", file, "-y").code == Exit.DONE
    moved = json.loads(on_broker("groups", "export", name, "-o", "json").out)["items"]
    assert [(row["topic"], row["partition"], row["offset"]) for row in moved] == [(name, 0, 0), (name, 1, 1)]
    assert on_broker("groups", "zookeeper", "nobody").code == Exit.NOT_FOUND


@pytest.mark.slow
@pytest.mark.java
def test_group_in_zookeeper_itself(kctl: Kctl, tmp_path: Path) -> None:
    """No broker is asked where ZooKeeper is named."""
    if reason := missing("3.9"):
        pytest.skip(reason)
    port = free_port()
    server = zookeeper(tmp_path / "zookeeper", port)
    address = f"127.0.0.1:{port}"
    client = KazooClient(hosts=address)
    try:
        client.start(timeout=60)
        client.create(ConsumerOffset.path("old", "t", 3), ConsumerOffset.encode(12), makepath=True)
        client.ensure_path(Consumer.parent("old"))
        member = Consumer({"t": 1}, "static", 5).encode()
        client.create(Consumer.path("old", "m"), member, ephemeral=True)
        ran = kctl("groups", "zookeeper", "old", "--zookeeper", address, "-o", "json")
        (row,) = json.loads(ran.out)["items"]
        assert (row["partition"], row["offset"], row["members"]) == (3, 12, ["m: t"])
        assert "stop them before its offsets are moved" in ran.err
        ran = kctl("cluster", "zk", "ls", "/consumers/old/ids", "--zookeeper", address, "-o", "json")
        (node,) = json.loads(ran.out)["items"]
        assert (node["path"], node["bytes"], node["ephemeral"]) == ("/consumers/old/ids/m", len(member), True)
        assert kctl("cluster", "zk", "get", "/consumers/old/offsets/t/3", "--zookeeper", address).out == "12\n"
        assert kctl("cluster", "zk", "get", "/nowhere", "--zookeeper", address).code == Exit.NOT_FOUND
    finally:
        client.stop()
        client.close()
        server.stop()
