"""kafkad as a user meets it: starting, stopping, reloading, and what it says about it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kafkad import __version__
from kafkad.broker.daemon import Daemon
from kafkad.broker.lifecycle import BrokerState
from kafkad.broker.metadata_store import MetadataStore
from kafkad.broker.parts import Parts
from kafkad.broker.supervised import Supervised
from kafkad.config import Config, load
from kafkad.errors import ErrorCode
from kafkad.exit_status import FAILED
from kafkad.log.damage import Damage
from kafkad.log.log import Log
from kafkad.names import TopicPartition
from kafkad.systemd import NOT_BLANK
from kafkad.timers import Timers
from kafkad.wire.records import Record, build_batch
from tests.broker import API_VERSIONS_V0, KafkadProcess, RawClient
from tests.clients.asker import Asker, batch, produce
from tests.fakes import FakeClock
from tests.oracle.kafka import free_port

SECONDS = 20


def eventually(kafkad: KafkadProcess, text: str) -> None:
    deadline = time.monotonic() + SECONDS
    while text not in kafkad.log:
        assert time.monotonic() < deadline, f"{text!r} is not in the log:\n{kafkad.log}"


def test_ready_message_names_listeners_and_data(tmp_path: Path) -> None:
    with KafkadProcess(tmp_path) as kafkad:
        eventually(kafkad, "ready in")
        ready = next(line for line in kafkad.log.splitlines() if "ready in" in line)
        assert f"PLAINTEXT://127.0.0.1:{kafkad.port}" in ready
        assert str(kafkad.log_directory()) in ready


def test_the_first_line_of_its_log_says_what_it_is(tmp_path: Path) -> None:
    settings = tmp_path / "kafkad.yaml"
    settings.write_text("message.max.bytes: 1000\n")
    kafkad = KafkadProcess(tmp_path)
    kafkad.arguments = ["--config", str(settings)]
    with kafkad:
        first = kafkad.log.splitlines()[0]
        assert f"start: kafkad {__version__}, process {kafkad.pid}, Python " in first
        assert first.endswith(f", configuration {settings}")


def test_who_changed_something_is_in_the_log(tmp_path: Path) -> None:
    with KafkadProcess(tmp_path) as kafkad:
        asker = Asker(kafkad.port, client_id="an operator")
        asker.create("orders", retention_ms="1000")
        port = asker.client.socket.getsockname()[1]
        eventually(
            kafkad,
            "INFO    audit: topic orders created with partitions=1, replication.factor=1, retention.ms=1000; "
            f"by User:ANONYMOUS from 127.0.0.1:{port}, client an operator",
        )
        asker.client.close()


def test_says_what_lies_in_its_directories_without_a_topic(tmp_path: Path) -> None:
    with KafkadProcess(tmp_path) as kafkad:
        asker = Asker(kafkad.port)
        asker.create("known")
        asker.client.close()
        kafkad.stop()
        shutil.copytree(kafkad.log_directory() / "known-0", kafkad.log_directory() / "unknown-0")
        kafkad.start()
        eventually(kafkad, f"the cluster has no replica here for {kafkad.log_directory()}/unknown-0;")


def test_tells_systemd_what_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(SECONDS)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "100000")

        def told(state: str) -> None:
            while not manager.recv(4096).startswith(state.encode()):
                pass

        kafkad = KafkadProcess(tmp_path).start(wait=False)
        told("READY=1")
        with RawClient(kafkad.port) as client:
            assert client.exchange(API_VERSIONS_V0)
        told("WATCHDOG=1")
        assert kafkad.process is not None
        kafkad.process.send_signal(signal.SIGHUP)
        told("RELOADING=1")
        told("READY=1")
        kafkad.process.terminate()
        told("STOPPING=1")
        assert kafkad.process.wait(SECONDS) == 0


def _broken() -> Config:
    raise OSError("a mistake")


def _without_the_users_of_a_listener() -> Config:
    return load(None, ["listeners=PLAINTEXT://127.0.0.1:9092"], {})


@pytest.mark.parametrize("read", [_broken, _without_the_users_of_a_listener])
def test_a_reload_that_fails_is_over_for_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[], Config]
) -> None:
    async def reload() -> None:
        settings = (
            f"log.dirs={tmp_path}",
            "listeners=PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms=SCRAM-SHA-512",
        )
        daemon = Daemon(load(None, settings, {}), read, None)
        parts = cast(Parts, SimpleNamespace(overrides_changed=lambda every_store: None))
        chore = asyncio.create_task(daemon._reload_when_asked(parts))
        for _ in range(2):
            daemon._reload_asked.set()
            while daemon._reload_asked.is_set():
                await asyncio.sleep(0)
        chore.cancel()
        daemon._notifier.close()

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        asyncio.run(reload())
        for state in (b"RELOADING=1", b"READY=1\nSTATUS=configuration not reloaded: see the log") * 2:
            assert manager.recv(4096).startswith(state)


@pytest.mark.parametrize("text", ["# only the header\n", "num.partitions: 1\n"])
def test_a_supervisor_hears_that_the_file_sets_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = tmp_path / "kafkad.yaml"
    file.write_text(text)

    async def ready() -> None:
        daemon = Daemon(load(str(file), [f"log.dirs={tmp_path}"], {}), _broken, None)
        daemon._tell_ready("listening")
        daemon._notifier.close()

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        asyncio.run(ready())
        assert (f"{NOT_BLANK}=1" in manager.recv(4096).decode()) == text.startswith("num")


@pytest.mark.parametrize(
    ("is_shared", "topics", "opened", "told"),
    [
        (True, 8, 30, "8 topics in the cluster, 30 partitions here"),
        (True, 8, 0, "8 topics in the cluster, 0 partitions here"),
        (False, 8, 30, "8 topics, 30 partitions"),
        (False, 0, 0, "no topics yet"),
    ],
)
def test_the_ready_line_counts_what_the_log_directories_hold(
    *, is_shared: bool, topics: int, opened: int, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not what the controller has told this broker to lead or follow: in a cluster that comes later."""

    async def ready() -> None:
        daemon = Daemon(load(None, [f"log.dirs={tmp_path}"], {}), _broken, None)
        daemon._logs.logs.update({TopicPartition("t", number): cast(Log, None) for number in range(opened)})
        metadata = SimpleNamespace(topics=dict.fromkeys(range(topics)))
        parts = SimpleNamespace(
            replicas=SimpleNamespace(metadata=metadata), identity=SimpleNamespace(broker_id=1, cluster_id="c")
        )
        daemon._announce(cast(Parts, parts), cast(MetadataStore, SimpleNamespace(is_shared=is_shared, problem=None)))

    with caplog.at_level(logging.INFO, "kafkad"):
        asyncio.run(ready())
    assert caplog.messages[-1].endswith(f"; data in {tmp_path}; {told}")


def test_a_supervisor_hears_from_the_beginning_of_the_start_on_that_a_broker_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This one waits for the metadata store, until that is gone."""

    async def started(
        manager: socket.socket, notices: socket.socket, store: socket.socket, supervisor: socket.socket
    ) -> str:
        config = load(None, [f"log.dirs={tmp_path}", f"listeners=PLAINTEXT://127.0.0.1:{free_port()}"], {})
        daemon = Daemon(config, lambda: config, Supervised(store=store, notices=notices))
        serving = asyncio.create_task(daemon.serve())
        first = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(manager, 4096), 20)
        supervisor.close()
        assert await serving == FAILED
        daemon._server.close()
        daemon._threads.end()
        daemon._notifier.close()
        return first.decode()

    store, supervisor = socket.socketpair()
    manager, notices = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.setblocking(False)
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    with manager:
        assert asyncio.run(started(manager, notices, store, supervisor)) == "WATCHDOG=1"


def test_names_and_paths_are_told_in_full_alone(tmp_path: Path) -> None:
    place = Damage(f"{tmp_path}/secret-0/00000000000000000000.log", 0, 10, 0, 1, "rot", was_cut=False)

    async def scenario() -> None:
        config = load(None, [f"log.dirs={tmp_path}"], {})
        daemon = Daemon(config, lambda: config, None)
        daemon._lifecycle.enter(BrokerState.RECOVERY, f"loading {tmp_path}: recovering secret-0")
        daemon._logs.damages.add(TopicPartition("secret", 0), place)
        assert daemon._health(True).text.count("secret-0") == 3
        assert daemon._health(False).text.split("\n") == [
            "loading logs",
            "damaged: places in logs: 1; the log names them",
        ]
        assert daemon._lifecycle.ready(False) == (False, "loading logs")
        daemon._lifecycle.enter(BrokerState.RUNNING)
        assert daemon._lifecycle.ready(False) == (True, "ok")
        daemon._logs.directories[0].failure = "Input/output error"
        assert daemon._health(True).text == f"log directories are offline: {tmp_path}"
        assert daemon._health(False).text == "log directories are offline: 1 of 1"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("settings", "tells"),
    [(["http.listener=127.0.0.1:9404"], True), (["http.listener=:9404"], False), (["kafkad.http.token=t"], True)],
)
def test_users_are_told_of_where_not_just_anybody_reads_the_metrics(
    tmp_path: Path, settings: list[str], tells: bool
) -> None:
    async def daemon() -> Daemon:
        config = load(None, [f"log.dirs={tmp_path}", "http.listener=:9404", *settings], {})
        return Daemon(config, lambda: config, None)

    assert asyncio.run(daemon())._may_tell_of_users() is tells


def test_idle_connections_are_looked_for_again_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad.broker.daemon._IDLE_CHECK_MS", 1)

    async def look() -> None:
        config = load(None, [f"log.dirs={tmp_path}"], {})
        daemon = Daemon(config, lambda: config, None)
        ticks, again = list[int](), asyncio.Event()

        def close_idle(tick: int, oldest_allowed: int) -> int:
            ticks.append(tick)
            if tick == 1:
                raise ValueError("a mistake")
            again.set()
            return 0

        monkeypatch.setattr(daemon._server, "close_idle", close_idle)
        chore = asyncio.create_task(daemon._close_idle())
        await asyncio.wait_for(again.wait(), SECONDS)
        chore.cancel()
        assert ticks[:2] == [1, 2]

    asyncio.run(look())


def test_a_broker_without_a_file_left_answers_what_it_has_never_been_asked(tmp_path: Path) -> None:
    with KafkadProcess(tmp_path) as kafkad:
        deadline = time.monotonic() + SECONDS
        while True:  # until it has imported what answers, soon after it was ready
            asker = Asker(kafkad.port)
            _, most = resource.prlimit(kafkad.pid, resource.RLIMIT_NOFILE)
            opened = {int(name) for name in os.listdir(f"/proc/{kafkad.pid}/fd")}
            first_free = min(set(range(len(opened) + 1)) - opened)
            resource.prlimit(kafkad.pid, resource.RLIMIT_NOFILE, (first_free, most))
            try:
                [deleted] = asker.ask("DeleteTopics", 3, {"topic_names": ["t"], "timeout_ms": 1_000}).responses
                break
            except ConnectionError:
                assert time.monotonic() < deadline, kafkad.log
            finally:
                resource.prlimit(kafkad.pid, resource.RLIMIT_NOFILE, (most, most))
                asker.client.close()
        assert deleted.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_retention_has_deleted_is_in_the_log(tmp_path: Path) -> None:
    with KafkadProcess(tmp_path, {"log.retention.ms": "1000", "log.retention.check.interval.ms": "100"}) as kafkad:
        asker = Asker(kafkad.port)
        asker.create("kept")
        asker.client.close()
        eventually(kafkad, "by retention.ms=1000")
        assert "INFO    broker.findings: kept-0: deleted offsets 0 to 5, 1 segments with " in kafkad.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_cleanly(tmp_path: Path, number: int) -> None:
    kafkad = KafkadProcess(tmp_path).start()
    asker = Asker(kafkad.port)
    asker.create("kept")
    assert kafkad.process is not None
    kafkad.process.send_signal(number)
    assert kafkad.process.wait(SECONDS) == 0
    assert (kafkad.log_directory() / ".kafka_cleanshutdown").exists()
    asker.client.close()
    with kafkad:
        again = Asker(kafkad.port)
        answer = again.ask("ListOffsets", 7, {"replica_id": -1, "topics": [LATEST]})
        assert answer.topics[0].partitions[0].offset == 6
        again.client.close()


def test_a_broker_whose_last_directory_fails_ends_at_once_and_says_why_once(tmp_path: Path) -> None:
    """Its controller was to be told of all partitions that nobody could make any more, and asked without end."""
    data = tmp_path / "data"
    topic = {"name": "t", "num_partitions": 3, "replication_factor": 1, "assignments": [], "configs": []}
    with KafkadProcess(tmp_path, {"kafkad.metadata.dir": str(tmp_path / "store")}) as kafkad:
        asker = Asker(kafkad.port)
        shutil.rmtree(data)
        asker.ask("CreateTopics", 4, {"topics": [topic], "timeout_ms": 30_000})
        asker.client.close()
        assert kafkad.process is not None
        assert kafkad.process.wait(SECONDS) == 1
    assert kafkad.log.count("no log directory can be used") == 1
    assert "Traceback" not in kafkad.log
    assert "stopped cleanly" not in kafkad.log
    assert f"without what is offline: {data}\n" in kafkad.log


LATEST = {"name": "kept", "partitions": [{"partition_index": 0, "timestamp": -1}]}


def test_says_what_it_recovers(tmp_path: Path) -> None:
    kafkad = KafkadProcess(tmp_path).start()
    asker = Asker(kafkad.port)
    asker.create("kept")
    asker.client.close()
    kafkad.kill()
    with kafkad:
        eventually(kafkad, "recover")
        assert "Traceback" not in kafkad.log


def test_a_file_is_taken_once_nobody_writes_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Half of it would be taken for all of it."""

    async def reload() -> None:
        file, clock = tmp_path / "kafkad.yaml", FakeClock()
        file.write_text("log.retention.ms: -1\n")

        def read() -> Config:
            return load(str(file), [f"log.dirs={tmp_path}"], {})

        async def pass_time() -> None:
            clock.advance(250)
            daemon._timers.expire(clock.monotonic_ms())
            for _ in range(5):
                await asyncio.sleep(0)

        daemon = Daemon(read(), read, None)
        daemon._clock, daemon._timers = clock, Timers()
        parts = cast(Parts, SimpleNamespace(overrides_changed=lambda every_store: None))
        chore = asyncio.create_task(daemon._reload_when_asked(parts))

        async def settings_after(*texts: str) -> tuple[int, int]:
            """That are read one after the other from when a reload is asked for."""
            daemon._reload_asked.set()
            for text in texts:
                file.write_text(text)
                await pass_time()
            config = daemon._settings.static
            return config.long("log.retention.ms"), config.int("message.max.bytes")

        kept = "log.retention.ms: -1\n"
        await pass_time()
        whole = f"{kept}message.max.bytes: 98\n"
        assert await settings_after("log.", "message.max.bytes: 99\n", "", kept, whole) == (-1, 1_048_588)
        assert await settings_after(whole) == (-1, 98)
        assert await settings_after("", "", "") == (-1, 98)
        assert await settings_after(*(f"message.max.bytes: {n}\n" for n in range(25))) == (-1, 98)
        chore.cancel()

    asyncio.run(reload())
    refused = "the configuration file was not taken; keeping the current configuration: "
    file = tmp_path / "kafkad.yaml"
    assert {record.message for record in caplog.records if record.levelname == "ERROR"} == {
        f"{refused}{file}: is empty; to run by the defaults, leave --config away",
        f"{refused}{file} changes all the time; send SIGHUP again once it does not",
    }


_ASKED_WHILE_IT_STARTS = """
import os, signal, sys
from kafkad import __main__ as kafkad

def load(*words, load=kafkad.load, **names):
    os.kill(os.getpid(), signal.SIGHUP)
    return load(*words, **names)

kafkad.load = load
sys.exit(kafkad.program())
"""


def test_a_reload_that_is_asked_for_amid_a_start_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafkad = KafkadProcess(tmp_path)
    python, _, _, *options = kafkad.command()
    monkeypatch.setattr(kafkad, "command", lambda: [python, "-c", _ASKED_WHILE_IT_STARTS, *options])
    with kafkad:
        eventually(kafkad, "configuration reloaded; changed: nothing")


def test_reload_changes_what_can_change(tmp_path: Path) -> None:
    settings = tmp_path / "kafkad.yaml"
    settings.write_text("message.max.bytes: 1000\n")
    kafkad = KafkadProcess(tmp_path)
    kafkad.arguments = ["--config", str(settings)]
    with kafkad:
        asker = Asker(kafkad.port)
        asker.create("small")

        def code() -> int:
            answer = asker.ask("Produce", 7, produce("small", batch(60)))
            return int(answer.responses[0].partition_responses[0].error_code)

        assert code() == 10
        settings.write_text("message.max.bytes: 100000\nlog.dirs.of.no.such: 1\n")
        kafkad.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        eventually(kafkad, "log.dirs.of.no.such")
        assert code() == 10
        settings.write_text("message.max.bytes: 100000\n")
        kafkad.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        eventually(kafkad, "reloaded")
        eventually(kafkad, f"INFO    audit: settings in {settings} changed: message.max.bytes; by SIGHUP")
        assert code() == 0
        asker.client.close()


def test_what_was_set_while_it_ran_holds_after_a_restart(tmp_path: Path) -> None:
    with KafkadProcess(tmp_path) as kafkad:
        asker = Asker(kafkad.port)
        wanted = {"max.connections.per.ip": "1", "kafkad.log.level": "warning", "num.io.threads": "9"}
        configs = [{"name": name, "config_operation": 0, "value": value} for name, value in wanted.items()]
        resource = {"resource_type": 4, "resource_name": "", "configs": configs}
        assert asker.ask("IncrementalAlterConfigs", 1, {"resources": [resource]}).responses[0].error_code == 0
        eventually(kafkad, "num.io.threads has no effect")
        asker.client.close()
        kafkad.stop()
        kafkad.log_path.unlink()
        kafkad.start(wait=False)
        eventually(kafkad, "num.io.threads has no effect")
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                with RawClient(kafkad.port) as first, RawClient(kafkad.port) as second:
                    assert second.closed_by_peer()
                    assert first.exchange(API_VERSIONS_V0)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
        assert "ready in" not in kafkad.log


def test_producers_are_forgotten_after_a_time_that_may_change(tmp_path: Path) -> None:
    with KafkadProcess(tmp_path, {"producer.id.expiration.check.interval.ms": "10"}) as kafkad:
        asker = Asker(kafkad.port)
        asker.create("quiet")
        sent = asker.ask("Produce", 7, produce("quiet", build_batch([RECORD], **PRODUCER)))
        assert sent.responses[0].partition_responses[0].error_code == 0

        def producers() -> int:
            asked = {"topics": [{"name": "quiet", "partition_indexes": [0]}]}
            (partition,) = asker.ask("DescribeProducers", 0, asked).topics[0].partitions
            return len(partition.active_producers)

        assert producers() == 1
        change = {"name": "producer.id.expiration.ms", "config_operation": 0, "value": "1"}
        resource = {"resource_type": 4, "resource_name": "", "configs": [change]}
        assert asker.ask("IncrementalAlterConfigs", 1, {"resources": [resource]}).responses[0].error_code == 0
        deadline = time.monotonic() + SECONDS
        while producers():
            assert time.monotonic() < deadline
        asker.client.close()


RECORD = Record(0, int(time.time() * 1000), b"key", b"value", ())
PRODUCER = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}


def test_logs_as_json(tmp_path: Path) -> None:
    with KafkadProcess(tmp_path, {"kafkad.log.format": "json"}) as kafkad:
        eventually(kafkad, "ready in")
        assert all(json.loads(line)["message"] for line in kafkad.log.splitlines())


def test_listeners_on_ipv4_and_ipv6(tmp_path: Path) -> None:
    inside, outside = free_port(), free_port()
    listeners = {
        "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://[::1]:{outside}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    kafkad = KafkadProcess(tmp_path, listeners)
    kafkad.port = inside
    with kafkad:
        for host, port in (("127.0.0.1", inside), ("::1", outside)):
            with RawClient(port, host=host) as client:
                assert client.exchange(API_VERSIONS_V0)
            asker = Asker(port, host=host)
            (broker,) = asker.ask("Metadata", 4, {"topics": []}).brokers
            assert (broker.host, broker.port) == (host, port)
            asker.client.close()


def test_metrics_health_and_readiness(tmp_path: Path) -> None:
    port = free_port()
    with KafkadProcess(tmp_path, {"http.listener": f"127.0.0.1:{port}"}) as kafkad:
        asker = Asker(kafkad.port)
        asker.create("counted")
        asker.client.close()

        def get(path: str) -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=SECONDS) as answer:
                return str(answer.read().decode())

        metrics = get("/metrics")
        for name in (
            "kafka_server_brokertopicmetrics_messagesin_total",
            "kafka_server_replicamanager_underreplicatedpartitions",
            "kafka_network_requestmetrics_totaltimems",
            "kafka_log_log_size",
            "kafka_server_kafkaserver_brokerstate 3\n",
            f'kafkad_build_info{{version="{__version__}",python="',
            "kafka_server_replicamanager_isrshrinks_total 0\n",
            "kafka_server_replicamanager_failedisrupdates_total 0\n",
            'kafka_server_replicafetchermanager_maxlag{clientId="Replica"} 0\n',
            "kafka_server_replicamanager_atminisrpartitioncount 1\n",
            "kafka_controller_kafkacontroller_preferredreplicaimbalancecount 0\n",
            "kafka_controller_controllereventmanager_eventqueuesize 0\n",
            "kafka_controller_controllerchannelmanager_totalqueuesize 0\n",
            'kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation="Fetch"} 0\n',
        ):
            assert f"\n{name}" in metrics
        assert 'topic="counted"' in metrics
        assert get("/health")
        assert get("/ready")


@pytest.mark.parametrize("insecure", ["false", "true"])
def test_a_listener_without_tls_that_others_reach_is_told_until_it_is_meant(tmp_path: Path, insecure: str) -> None:
    port = free_port()
    broker = KafkadProcess(tmp_path, {"http.listener": f"127.0.0.1:{port}", "kafkad.insecure": insecure})
    broker.settings["listeners"] = f"PLAINTEXT://0.0.0.0:{broker.port}"
    broker.settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{broker.port}"
    told = "listener PLAINTEXT is PLAINTEXT on 0.0.0.0: anybody who reaches it"
    with broker:
        pages = [
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=SECONDS).read().decode()
            for path in ("/health", "/metrics")
        ]
        doctor = subprocess.run(
            [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "doctor", "--only", "exposed"],
            capture_output=True,
            text=True,
        )
    if insecure == "true":
        assert told not in broker.log
        assert pages[0] == "ok\n"
        assert "\nkafkad_exposed_listeners 0\n" in pages[1]
        assert doctor.returncode == 0, doctor
    else:
        assert broker.log.count(told) == 1
        assert pages[0].startswith(f"ok\nexposed: {told}")
        assert "\nkafkad_exposed_listeners 1\n" in pages[1]
        assert told in doctor.stdout


def test_address_in_use(tmp_path: Path) -> None:
    with KafkadProcess(tmp_path / "first") as first:
        second = KafkadProcess(tmp_path / "second", {"listeners": f"PLAINTEXT://127.0.0.1:{first.port}"})
        second.start(wait=False)
        assert second.process is not None
        assert second.process.wait(SECONDS) == 1
        assert str(first.port) in second.log
        assert "Traceback" not in second.log


def test_http_address_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        kafkad = KafkadProcess(tmp_path, {"http.listener": address}).start(wait=False)
        assert kafkad.process is not None
        assert kafkad.process.wait(SECONDS) == 1
        assert f"cannot start: cannot serve HTTP on {address}: Address already in use; see" in kafkad.log
        assert not kafkad.log_directory().exists()


def test_bad_configuration_touches_no_data(tmp_path: Path) -> None:
    kafkad = KafkadProcess(tmp_path, {"log.segment.bytes": "many"}).start(wait=False)
    assert kafkad.process is not None
    assert kafkad.process.wait(SECONDS) == 2
    assert "log.segment.bytes" in kafkad.log
    assert not kafkad.log_directory().exists()


def test_version() -> None:
    said = subprocess.run([sys.executable, "-m", "kafkad", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("kafkad ")
