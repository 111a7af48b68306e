"""`kafkad --brokers N` as an operator and a client meet it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafkad.log.checkpoint import META_PROPERTIES
from kafkad.names import METADATA_FILE
from kafkad.supervisor.broker_http import HttpAnswer, ask
from tests.broker import KafkadProcess
from tests.clients.asker import Asker

from .host import SECONDS, Host, eventually

pytestmark = pytest.mark.slow


def create(host: Host, topic: str, partitions: int, replicas: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": host.bootstrap})
    new = NewTopic(topic, partitions, replicas, config={k.replace("_", "."): v for k, v in config.items()})
    admin.create_topics([new])[topic].result(30)


def produce(bootstrap: str, topic: str, partition: int, values: list[str]) -> None:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(30) == 0
    assert set(failed) == {None}


def consume(bootstrap: str, topic: str, partition: int, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[str] = []
    end = time.monotonic() + 30
    while len(values) < count and time.monotonic() < end:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
    consumer.close()
    return values


def leader(asker: Asker, topic: str, partition: int = 0) -> int:
    partitions = asker.ask("Metadata", 9, {"topics": [{"name": topic}]}).topics[0].partitions
    return next((p.leader_id for p in partitions if p.partition_index == partition), -1)


def listening(pid: int) -> set[int]:
    """The ports at which a process takes connections."""
    sockets = {os.readlink(descriptor) for descriptor in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {
        int(local.partition(":")[2], 16)
        for _, local, _, state, *_, inode in (row[:10] for row in rows)
        if state == "0A" and f"socket:[{inode}]" in sockets
    }


def test_several_brokers_are_one_cluster_with_one_readiness_and_one_page_of_metrics(tmp_path: Path) -> None:
    with Host(tmp_path, 3) as host:
        create(host, "orders", 6, 1)
        seen = []
        for broker in range(3):
            asker = host.asker(broker)
            answer = asker.ask("Metadata", 9, {"topics": [{"name": "orders"}]})
            brokers = {(b.node_id, b.host, b.port) for b in answer.brokers}
            assert brokers == {(n, "127.0.0.1", host.port + n) for n in range(3)}
            seen.append({p.partition_index: p.leader_id for p in answer.topics[0].partitions})
            asker.client.close()
        assert seen[0] == seen[1] == seen[2]
        assert sorted(seen[0].values()) == [0, 0, 1, 1, 2, 2]
        for partition in range(6):
            produce(host.bootstrap, "orders", partition, [f"{partition}-{n}" for n in range(20)])
            assert (host.directory(seen[0][partition]) / f"orders-{partition}").is_dir()
            assert consume(host.bootstrap, "orders", partition, 20) == [f"{partition}-{n}" for n in range(20)]

        status, text = host.http("/metrics")
        assert status == 200
        assert set(re.findall(r'^kafkad_broker_up\{broker="(\d)"\} 1', text, re.M)) == {"0", "1", "2"}
        assert set(re.findall(r'^kafkad_build_info\{broker="(\d)"', text, re.M)) == {"0", "1", "2"}
        families = re.findall(r"^# TYPE (\S+)", text, re.M)
        assert len(families) == len(set(families)) > 50
        assert host.http("/ready") == (200, "ok\n")
        assert host.http("/health")[0] == 200
        [private] = listening(host.broker_pid(1)) - {host.port + 1}
        assert asyncio.run(ask(private, "/metrics", "guessed")) == HttpAnswer(
            False, "metrics are for those who show the token, as in Authorization: Bearer TOKEN\n"
        )

        assert host.stop() == 0
        assert "controlled shutdown" not in host.log  # nobody stays to whom anything could be handed over
        for broker in range(3):
            assert (host.directory(broker) / ".kafka_cleanshutdown").exists()
        host.start()
        assert consume(host.bootstrap, "orders", 0, 20) == [f"0-{n}" for n in range(20)]


def test_a_killed_broker_is_noticed_at_once_and_started_again(tmp_path: Path) -> None:
    with Host(tmp_path, 2) as host:
        create(host, "orders", 2, 2)
        asker = host.asker(0)
        eventually(lambda: {leader(asker, "orders", p) for p in range(2)} == {0, 1}, "leaders on both")
        moved = next(p for p in range(2) if leader(asker, "orders", p) == 1)
        host.kill_broker(1)
        took = eventually(lambda: leader(asker, "orders", moved) == 0, "the other broker to lead")
        assert took < 1
        assert "broker 1 (process" in host.log
        assert "was killed by SIGKILL; it is started again at once" in host.log
        eventually(lambda: len(asker.ask("Metadata", 9, {"topics": []}).brokers) == 2, "broker 1 to be back")
        host.wait_ready()
        asker.client.close()
        assert 'kafkad_broker_restarts_total{broker="1"} 1' in host.http("/metrics")[1]


def of_partition_0(asker: Asker, topic: str) -> Any:
    return asker.ask("Metadata", 9, {"topics": [{"name": topic}]}).topics[0].partitions[0]


class Feed:
    """Produces numbers, one after the other, for as long as a test waits for something."""

    def __init__(self, host: Host, topic: str) -> None:
        self._host = host
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": host.bootstrap, "enable.idempotence": True, "linger.ms": 1})
        self._failed: list[Any] = []
        self.sent = 0

    def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < end, f"waited for {what}:\n{self._host.log}"
            self._producer.produce(self._topic, str(self.sent), on_delivery=self._delivered)
            self._producer.poll(0.01)
            self.sent += 1

    def all_acknowledged(self) -> bool:
        return self._producer.flush(30) == 0 and not self._failed

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed.append(error)


def test_nothing_is_lost_or_doubled_by_kills_and_a_rolling_restart(tmp_path: Path) -> None:
    with Host(tmp_path, 3) as host:
        create(host, "orders", 1, 2)
        askers = [host.asker(broker) for broker in range(3)]
        replicas = set(of_partition_0(askers[0], "orders").replica_nodes)
        bystander = askers[({0, 1, 2} - replicas).pop()]
        feed = Feed(host, "orders")

        def whole() -> bool:
            return set(of_partition_0(bystander, "orders").isr_nodes) == replicas

        def moved_from(led: int) -> Callable[[], bool]:
            return lambda: leader(bystander, "orders") in replicas - {led}

        feed.until(whole, "both replicas to be in sync")
        for end_broker in (host.kill_broker, host.kill_broker, host.stop_broker):
            led = leader(bystander, "orders")
            end_broker(led)
            feed.until(moved_from(led), "the other replica to lead")
            feed.until(whole, "the broker to be back and in sync")
        assert feed.all_acknowledged()
        assert feed.sent > 50
        assert consume(host.bootstrap, "orders", 0, feed.sent) == [str(n) for n in range(feed.sent)]
        for asker in askers:
            asker.client.close()
        assert "are left alone" not in host.log  # no replica was taken for one that nobody knows
        assert host.stop() == 0
        logs = [host.directory(replica) / "orders-0" / f"{0:020d}.log" for replica in replicas]
        assert logs[0].read_bytes() == logs[1].read_bytes()


def test_a_broker_that_hangs_loses_its_session_and_its_leaderships(tmp_path: Path) -> None:
    with Host(tmp_path, 2) as host:
        create(host, "orders", 2, 2)
        asker = host.asker(0)
        moved = next(p for p in range(2) if leader(asker, "orders", p) == 1)
        os.kill(host.broker_pid(1), signal.SIGSTOP)
        try:
            took = eventually(lambda: leader(asker, "orders", moved) == 0, "the other broker to lead")
        finally:
            os.kill(host.broker_pid(1), signal.SIGCONT)
        assert 3 < took < 15
        eventually(lambda: len(asker.ask("Metadata", 9, {"topics": []}).brokers) == 2, "broker 1 to register again")
        asker.client.close()


def test_brokers_do_not_outlive_their_supervisor(tmp_path: Path) -> None:
    host = Host(tmp_path, 2).start()
    create(host, "orders", 1, 1)
    produce(host.bootstrap, "orders", 0, ["kept"])
    pids = [host.broker_pid(broker) for broker in range(2)]
    host.kill()
    host.wait_all_gone(pids)
    assert host.log.count("the supervisor, which has the metadata store, is gone") == 2
    assert all((host.directory(broker) / ".kafka_cleanshutdown").exists() for broker in range(2))
    with host:
        assert consume(host.bootstrap, "orders", 0, 1) == ["kept"]


def test_producers_that_wait_for_followers_hold_up_no_stop(tmp_path: Path) -> None:
    """The followers stop too: a produce with acks=all would be answered when its 30 s are over."""
    with Host(tmp_path, 3) as host:
        create(host, "orders", 3, 3)
        producer = Producer({"bootstrap.servers": host.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
        stopping = threading.Event()

        def feed() -> None:
            while not stopping.is_set():
                producer.produce("orders", b"x" * 100)
                producer.poll(0.001)

        feeding = threading.Thread(target=feed)
        feeding.start()
        try:
            time.sleep(1)
            begun = time.monotonic()
            assert host.stop() == 0
            assert time.monotonic() - begun < 10
        finally:
            stopping.set()
            feeding.join()
            producer.purge()
            producer.flush(5)


def test_the_directory_of_one_broker_becomes_the_first_of_several_and_back(tmp_path: Path) -> None:
    own = {"broker.id": "", "offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}
    single = KafkadProcess(tmp_path, own)
    with single:
        asker = Asker(single.port)
        asker.create("old")
        known = asker.ask("Metadata", 9, {"topics": []}).brokers[0].node_id
        asker.client.close()
    host = Host(tmp_path, 2, own | {"kafkad.placement.start": "0"})
    with host:
        asker = host.asker(0)
        eventually(lambda: leader(asker, "old") == known, "the first broker to lead again")
        assert sorted(b.node_id for b in asker.ask("Metadata", 9, {"topics": []}).brokers) == [known, known + 1]
        asker.client.close()
        assert len(consume(host.bootstrap, "old", 0, 6)) == 6
        create(host, "new", 2, 1)
    refused = single.start(wait=False)
    assert refused.process is not None
    assert refused.process.wait(40) == 1
    assert f"broker {known + 1} has new-" in single.log
    assert f"kctl partitions drain {known + 1}" in single.log
    with host:
        admin = AdminClient({"bootstrap.servers": host.bootstrap})
        admin.delete_topics(["new"])["new"].result(30)
        eventually(lambda: "new" not in admin.list_topics(timeout=10).topics, "the topic to be gone")
    with single:
        assert len(consume(single.bootstrap, "old", 0, 6)) == 6


def test_a_broker_whose_only_directory_is_on_a_new_disk_gets_its_replicas_again(tmp_path: Path) -> None:
    with Host(tmp_path, 3) as host:
        create(host, "orders", 1, 3)
        produce(host.bootstrap, "orders", 0, [str(n) for n in range(20)])
        host.stop()
        shutil.rmtree(host.directory(2))
        host.directory(2).mkdir()
        host.start(wait=False)
        eventually(lambda: "no log directory can be used" in host.log, "the refusal")
        command = re.findall(r"begin empty after: (\(.*?\) > \S+)", host.log)[0]
        subprocess.run(["bash", "-c", command], check=True)
        host.wait_ready()
        asker = host.asker(0)
        eventually(lambda: set(of_partition_0(asker, "orders").isr_nodes) == {0, 1, 2}, "broker 2 to be in sync")
        asker.client.close()
        segments = {(host.directory(n) / "orders-0" / f"{0:020}.log").read_bytes() for n in range(3)}
        assert len(segments) == 1


def test_a_directory_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    host = Host(tmp_path, 2, {"broker.id": "", "log.dirs": f"{whole},{broken}"})
    with host:
        pass
    file = broken / META_PROPERTIES
    file.unlink()
    file.mkdir()
    with host:
        assert f"reading {file}: Is a directory" in host.log
    file.rmdir()
    (whole / META_PROPERTIES).write_text("version=7\n")
    file.mkdir()
    host.start(wait=False)
    assert host.process is not None
    assert host.process.wait(20) == 1
    assert f"cannot start: {whole / META_PROPERTIES}, line 1: " in host.log


def test_a_directory_of_a_kafka_in_kraft_mode_ends_the_start_before_there_is_a_store(tmp_path: Path) -> None:
    new, kraft = tmp_path / "new", tmp_path / "kraft"
    kraft.mkdir()
    (kraft / META_PROPERTIES).write_text("version=1\nnode.id=3\n")
    host = Host(tmp_path, 2, {"broker.id": "", "log.dirs": f"{new},{kraft}"})
    host.start(wait=False)
    assert host.process is not None
    assert host.process.wait(20) == 1
    assert "of a Kafka in KRaft mode" in host.log
    assert not list(tmp_path.rglob(METADATA_FILE))


def test_directories_of_kafka_are_adopted_by_one_broker_first(tmp_path: Path) -> None:
    single = KafkadProcess(tmp_path)
    with single:
        asker = Asker(single.port)
        asker.create("old")
        asker.client.close()
    (single.log_directory() / METADATA_FILE).unlink()  # as if Kafka had written the rest
    host = Host(tmp_path, 2, {"broker.id": ""})
    host.start(wait=False)
    assert host.process is not None
    assert host.process.wait(20) == 1
    assert "Start kafkad without kafkad.brokers once: it adopts the topics that it finds" in host.log
    assert (single.log_directory() / "old-0").is_dir()
    with single:
        assert "adopted 1 topics" in single.log
    with host:
        assert consume(host.bootstrap, "old", 0, 6)


def test_listeners_without_tls_that_others_reach_are_found(tmp_path: Path) -> None:
    host = Host(tmp_path, 2)
    host.settings["listeners"] = f"PLAINTEXT://0.0.0.0:{host.port}"
    host.settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{host.port}"
    with host:
        doctor = subprocess.run(
            [sys.executable, "-m", "kctl", "-b", host.bootstrap, "doctor", "--only", "exposed"],
            capture_output=True,
            text=True,
        )
    assert doctor.returncode == 7, doctor
    assert doctor.stdout.count("listener PLAINTEXT is PLAINTEXT on 0.0.0.0: anybody who reaches it") == 2
    assert all(f" (broker {broker})\n" in doctor.stdout for broker in range(2))


def test_systemd_hears_once_for_all_and_a_reload_reaches_each_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "kafkad.yaml"
    settings.write_text("message.max.bytes: 1000000\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(40)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "3000000")  # a start takes much less

        def told(state: str) -> str:
            while not (message := manager.recv(4096).decode()).startswith(state):
                pass
            return message

        host = Host(tmp_path, 2)
        host.arguments = ["--config", str(settings)]
        host.start(wait=False)
        assert told("READY=1") == "READY=1\nSTATUS=brokers 0, 1 are ready"
        told("WATCHDOG=1")
        settings.write_text("message.max.bytes: 2000000\n")
        assert host.process is not None
        host.process.send_signal(signal.SIGHUP)
        told("RELOADING=1")
        assert told("READY=1") == "READY=1\nSTATUS=configuration reloaded"
        for broker in range(2):
            assert f"broker {broker}: broker.daemon: configuration reloaded; changed: message.max.bytes" in host.log
        hung = host.broker_pid(1)
        os.kill(hung, signal.SIGSTOP)  # it does not feed its watchdog any more
        eventually(lambda: "broker 1 (process" in host.log and "hangs" in host.log, "the watchdog")
        told(f"STATUS=broker 1: (process {hung}) was killed by SIGKILL; it is started again at once")
        told("STATUS=2 brokers are ready")
        host.process.terminate()
        told("STOPPING=1")
        assert host.process.wait(40) == 0, host.log


def test_a_broker_whose_port_is_taken_does_not_keep_the_others_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(40)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        host = Host(tmp_path, 2)
        with socket.create_server(("127.0.0.1", host.port + 1)):
            host.start(wait=False)
            while not (message := manager.recv(4096).decode()).startswith("READY=1"):
                assert host.alive()
            assert message.startswith("READY=1\nSTATUS=broker 0 is ready; broker 1: "), message
            produce(f"127.0.0.1:{host.port}", "served", 0, ["a"])
        host.wait_ready()
        host.stop()


def test_a_configuration_that_cannot_be_is_refused_before_anything_starts(tmp_path: Path) -> None:
    host = Host(tmp_path, 2, {"http.listener": ""})
    host.settings["http.listener"] = f"127.0.0.1:{host.port + 1}"
    host.start(wait=False)
    assert host.process is not None
    assert host.process.wait(20) == 2
    assert "would be that of http.listener and of listener PLAINTEXT of broker number 2" in host.log
    assert not host.log_directory().exists()
