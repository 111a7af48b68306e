"""A kafkad process whose metadata is in a real ZooKeeper: starts, registrations, lost sessions, stops."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.broker import KafkadProcess
from tests.clients.asker import Asker, batch, produce
from tests.oracle.kafka import free_port
from tests.oracle.zookeeper import ZooKeeper, missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.skipif(missing("3.8") is not None, reason=str(missing("3.8"))),
]

SESSION_MS = 3_000
REGISTRATION = "/brokers/ids/1"
_roots = count()


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeper]:
    with ZooKeeper("3.8") as running:
        yield running


class Cluster:
    """A root of its own in ZooKeeper, seen by a plain client, and kafkads in it."""

    def __init__(self, server: ZooKeeper, directory: Path) -> None:
        self.connect = f"{server.connect}/cluster{next(_roots)}"
        self.directory = directory
        self.zookeeper = KazooClient(self.connect, timeout=20)

    def kafkad(self, name: str = "one", **settings: str) -> KafkadProcess:
        named = {setting.replace("_", "."): value for setting, value in settings.items()}
        chosen = {
            "zookeeper.connect": self.connect,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "offsets.topic.num.partitions": "1",
            **named,
        }
        return KafkadProcess(self.directory / name, chosen)

    def owner(self) -> int:
        """The session of broker 1's registration; 0 when there is none."""
        stat = self.zookeeper.exists(REGISTRATION)
        return 0 if stat is None else int(stat.ephemeralOwner)


@pytest.fixture
def cluster(server: ZooKeeper, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(server, tmp_path)
    made.zookeeper.start_async().wait()  # `start` would warn that nobody has made the root yet
    yield made
    made.zookeeper.stop()
    made.zookeeper.close()


def wait_until(condition: Callable[[], object], what: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}, after {seconds} s"
        time.sleep(0.02)


@contextmanager
def asking(kafkad: KafkadProcess) -> Iterator[Asker]:
    asker = Asker(kafkad.port)
    try:
        yield asker
    finally:
        asker.client.close()


def end_of(asker: Asker, topic: str) -> int:
    """The offset after its last record; -1 while there is no leader."""
    partitions = [{"partition_index": 0, "timestamp": -1}]
    asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}]}
    return int(asker.ask("ListOffsets", 7, asked).topics[0].partitions[0].offset)


def append(asker: Asker, topic: str) -> int:
    """The error code of producing a record."""
    sent = asker.ask("Produce", 7, produce(topic, batch(1)))
    return int(sent.responses[0].partition_responses[0].error_code)


def creation(asker: Asker, topic: str) -> int:
    """The error code of creating a topic."""
    new = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    answer = asker.ask("CreateTopics", 4, {"topics": [new], "timeout_ms": 30000})
    return int(answer.topics[0].error_code)


def test_metadata_are_kept_in_zookeeper_over_restarts(cluster: Cluster) -> None:
    with cluster.kafkad() as kafkad:
        with asking(kafkad) as asker:
            asker.create("t", retention_ms="-1")
        topic = json.loads(cluster.zookeeper.get("/brokers/topics/t")[0])
        assert (topic["partitions"], topic["version"]) == ({"0": [1]}, 3)
        assert json.loads(cluster.zookeeper.get("/config/topics/t")[0])["config"] == {"retention.ms": "-1"}
        assert json.loads(cluster.zookeeper.get("/controller")[0])["brokerid"] == 1
        assert kafkad.stop() == 0
        assert cluster.owner() == 0  # ended with its session, and not after a timeout
        assert not list(kafkad.log_directory().glob("kafkad-metadata*"))
        kafkad.start()
        with asking(kafkad) as asker:
            wait_until(lambda: end_of(asker, "t") == 6, "its records are there")
        assert "internal error" not in kafkad.log


def test_what_a_tool_writes_into_zookeeper_is_carried_out(cluster: Cluster) -> None:
    with cluster.kafkad() as kafkad, asking(kafkad) as asker:
        zookeeper = cluster.zookeeper
        zookeeper.create("/brokers/topics/by-hand", b'{"version":1,"partitions":{"0":[1]}}')
        wait_until(lambda: append(asker, "by-hand") == 0, "the topic is served")
        assert "topic_id" in json.loads(zookeeper.get("/brokers/topics/by-hand")[0])
        zookeeper.create("/admin/delete_topics/by-hand")
        wait_until(lambda: zookeeper.exists("/brokers/topics/by-hand") is None, "the topic is deleted")
        wait_until(lambda: zookeeper.exists("/admin/delete_topics/by-hand") is None, "the wish is fulfilled")
        assert "internal error" not in kafkad.log


def test_the_session_with_zookeeper_is_measured(cluster: Cluster) -> None:
    http = free_port()
    with (
        cluster.kafkad(http_listener=f"127.0.0.1:{http}"),
        urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics", timeout=5) as answer,
    ):
        series = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
    latency = "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"
    assert int(series[f"{latency}_count"]) > 10
    assert 0 < float(series[f'{latency}{{quantile="0.50"}}']) < 5_000
    session = "kafka_server_sessionexpirelistener"
    assert series[f"{session}_zookeepersyncconnects_total"] == series[f"{session}_zookeepersyncconnectspersec"] == "1"
    assert series[f"{session}_zookeeperexpires_total"] == "0"
    assert series[f'{session}_sessionstate{{state="CONNECTED"}}'] == "1"


def test_kctl_looks_into_zookeeper(cluster: Cluster) -> None:
    with cluster.kafkad() as kafkad:
        with asking(kafkad) as asker:
            asker.create("t")

        def kctl(*words: str) -> str:
            command = [sys.executable, "-m", "kctl", "-b", kafkad.bootstrap, "cluster", *words]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

        assert "/brokers/topics/t" in kctl("zk", "ls", "/brokers/topics")
        assert json.loads(kctl("zk", "get", "/brokers/topics/t/partitions/0/state"))["leader"] == 1
        assert "zookeeper, controller 1" in kctl("describe")


def test_a_broker_that_was_killed_waits_for_its_old_session(cluster: Cluster) -> None:
    """And no longer: it serves half a second after the end of that session, on a machine with nothing else to do."""
    with cluster.kafkad(zookeeper_session_timeout_ms="10000") as kafkad:
        first = cluster.owner()
        kafkad.kill()
        kafkad.start(wait=False)
        wait_until(lambda: cluster.owner() != first, "the old session is over")
        begun = time.monotonic()
        kafkad.wait_ready()
        assert time.monotonic() - begun < 5
        assert cluster.owner() not in (0, first)
        assert f"waiting for the session of this broker's previous process to expire: {REGISTRATION}" in kafkad.log


def test_a_second_broker_with_the_same_id_is_refused_and_the_first_goes_on(cluster: Cluster) -> None:
    with cluster.kafkad() as kafkad:
        owner = cluster.owner()
        twin = cluster.kafkad("twin")
        twin.start(wait=False)
        assert twin.process is not None
        assert twin.process.wait(30) == 1
        assert f"cannot start: {REGISTRATION} belongs to another live process, at 127.0.0.1:{kafkad.port}: " in twin.log
        assert cluster.owner() == owner
        with asking(kafkad) as asker:
            asker.create("t")


def test_directories_of_a_cluster_that_zookeeper_does_not_have_are_refused(cluster: Cluster) -> None:
    """A wrong path, or a ZooKeeper without its data."""
    kafkad = cluster.kafkad().start()
    assert kafkad.stop() == 0
    kafkad.settings["zookeeper.connect"] += "/wrong"
    kafkad.start(wait=False)
    assert kafkad.process is not None
    assert kafkad.process.wait(30) == 1
    assert "/wrong, /cluster/id: does not exist, and this broker belongs to cluster " in kafkad.log
    assert (
        f" by {kafkad.log_dirs[0]}/meta.properties; is the path after the servers in zookeeper.connect " in kafkad.log
    )
    assert cluster.zookeeper.exists("/wrong/brokers") is None


def test_sigterm_ends_the_wait_for_the_old_session_at_once(cluster: Cluster) -> None:
    kafkad = cluster.kafkad(zookeeper_session_timeout_ms="30000").start()
    kafkad.kill()
    kafkad.start(wait=False)
    wait_until(lambda: "waiting for the session of this broker's previous" in kafkad.log, "it waits")
    begun = time.monotonic()
    assert kafkad.stop() == 0
    assert time.monotonic() - begun < 5
    assert "internal error" not in kafkad.log
    assert (kafkad.log_directory() / ".kafka_cleanshutdown").exists()


def test_an_expired_session_is_followed_by_a_new_registration_without_a_restart(cluster: Cluster) -> None:
    with cluster.kafkad() as kafkad:
        first = cluster.owner()
        with asking(kafkad) as asker:
            asker.create("t")
        kafkad._running().send_signal(signal.SIGSTOP)
        wait_until(lambda: cluster.owner() == 0, "the session expires")
        kafkad._running().send_signal(signal.SIGCONT)
        wait_until(lambda: cluster.owner() not in (0, first), "it registers again")
        with asking(kafkad) as asker:
            wait_until(lambda: append(asker, "t") == 0, "it serves")
            wait_until(lambda: creation(asker, "u") == 0, "it is the controller again")
        assert "internal error" not in kafkad.log


def test_a_zookeeper_that_is_not_there_is_waited_for_while_health_is_answered(cluster: Cluster) -> None:
    port, http = free_port(), free_port()
    late = ZooKeeper("3.8", port)
    kafkad = cluster.kafkad(
        zookeeper_connect=late.connect, zookeeper_connection_timeout_ms="60000", http_listener=f"127.0.0.1:{http}"
    ).start(wait=False)
    try:
        wait_until(lambda: f"waiting for ZooKeeper at 127.0.0.1:{port}: Connection refused" in kafkad.log, "it says so")
        with urllib.request.urlopen(f"http://127.0.0.1:{http}/health", timeout=5) as answer:
            assert f"waiting for ZooKeeper at 127.0.0.1:{port}" in answer.read().decode()
        with late:
            kafkad.wait_ready()
            kafkad.stop()
    finally:
        if kafkad.alive():
            kafkad.kill()


def test_a_zookeeper_that_does_not_come_is_named(cluster: Cluster) -> None:
    port = free_port()
    kafkad = cluster.kafkad(zookeeper_connect=f"127.0.0.1:{port}/kafka", zookeeper_connection_timeout_ms="500")
    kafkad.start(wait=False)
    assert kafkad.process is not None
    assert kafkad.process.wait(30) == 1
    assert "cannot start: cannot begin a session with ZooKeeper within 500 ms: " in kafkad.log
    assert f"127.0.0.1:{port}/kafka: ZooKeeper does not answer: Connection refused; see zookeeper.connect" in kafkad.log


def test_sigterm_ends_the_wait_for_zookeeper_at_once(cluster: Cluster) -> None:
    kafkad = cluster.kafkad(zookeeper_connect=f"127.0.0.1:{free_port()}", zookeeper_connection_timeout_ms="60000")
    kafkad.start(wait=False)
    wait_until(lambda: "waiting for ZooKeeper" in kafkad.log, "it waits")
    begun = time.monotonic()
    assert kafkad.stop() == 0
    assert time.monotonic() - begun < 5


HELD_BACK = """
import asyncio, pathlib, sys
from kafkad.__main__ import main
from kafkad.broker import starting

held, prepare = pathlib.Path(sys.argv.pop(1)), starting.prepare

async def prepare_later(store):
    while held.exists():
        await asyncio.sleep(0.01)
    await prepare(store)

starting.prepare = prepare_later
sys.exit(main())
"""


class HeldBack(KafkadProcess):
    """Connects to ZooKeeper, and reads nothing there as long as the file `held` exists."""

    held: Path

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [python, "-c", HELD_BACK, str(self.held), *arguments]


def test_sigterm_ends_the_wait_for_a_zookeeper_that_went_during_the_start(cluster: Cluster, tmp_path: Path) -> None:
    with ZooKeeper("3.8", free_port()) as short:
        kafkad = HeldBack(tmp_path / "held back", {"zookeeper.connect": short.connect})
        kafkad.held = tmp_path / "held"
        kafkad.held.touch()
        kafkad.start(wait=False)
        wait_until(lambda: "connected to ZooKeeper" in kafkad.log, "there is a session")
        short.kill()
        wait_until(lambda: "lost the connection to ZooKeeper" in kafkad.log, "ZooKeeper is gone")
        kafkad.held.unlink()
        time.sleep(0.1)
        begun = time.monotonic()
        assert kafkad.stop() == 0
        assert time.monotonic() - begun < 5
    assert "internal error" not in kafkad.log


def test_zookeeper_away_for_a_while_costs_nothing(cluster: Cluster, server: ZooKeeper) -> None:
    http = free_port()
    settings = {"zookeeper_session_timeout_ms": "20000", "http_listener": f"127.0.0.1:{http}"}

    def health() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{http}/health", timeout=5) as answer:
            return str(answer.read().decode())

    with cluster.kafkad(**settings) as kafkad, asking(kafkad) as asker:
        asker.create("t")
        owner = cluster.owner()
        server.kill()
        assert append(asker, "t") == 0
        wait_until(lambda: f"no connection to ZooKeeper at {cluster.connect}" in health(), "/health says so")
        time.sleep(2)
        assert append(asker, "t") == 0
        server.start()
        asker.create("u")
        assert health() == "ok\n"
        wait_until(lambda: cluster.zookeeper.connected, "the client is back")
        assert cluster.owner() == owner
        assert kafkad.log.count("lost the connection to ZooKeeper") == 1
        assert "reconnected to ZooKeeper" in kafkad.log
        assert "internal error" not in kafkad.log
