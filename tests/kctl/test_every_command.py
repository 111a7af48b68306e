"""Rules for every command that asks a broker: nobody there, somebody else there, nothing of that name, no terminal.

A command without a line in the tables below fails the first test.
"""

from __future__ import annotations

import io
import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from kctl.command.noun import LazyGroup
from kctl.errors import Exit
from tests.kctl.conftest import Kctl
from tests.kctl.test_cli import COMMANDS_AND_VERBS, loaded
from tests.oracle.kafka import free_port

OFFLINE = {"version", "help", "completion", "dump-segment", "dump-index", "check-log"}
LOOKING = {
    "topics list": "",
    "topics describe": "t",
    "topics offsets": "t",
    "groups list": "",
    "groups describe": "g",
    "groups lag": "",
    "groups members": "g",
    "groups export": "g",
    "groups zookeeper": "g",
    "partitions list": "",
    "partitions plan": "--rf 1 -f {plan}",
    "partitions status": "",
    "consume": "t",
    "brokers list": "",
    "brokers describe": "1",
    "brokers log-dirs": "",
    "brokers api-versions": "",
    "cluster describe": "",
    "cluster controller": "",
    "cluster features": "",
    "cluster quorum": "",
    "configs describe": "topic/t",
    "configs diff": "broker/1 broker/2",
    "acls list": "",
    "acls check": "alice Write t",
    "users list": "",
    "quotas list": "",
    "quotas describe": "user=a",
    "tokens list": "",
    "txns list": "",
    "txns describe": "x",
    "txns producers": "t",
    "txns hanging": "",
    "doctor": "",
    "raw": "Metadata",
}
CHANGING = {
    "topics create": "t",
    "topics delete": "t",
    "topics alter": "t --config retention.ms=1d",
    "topics add-partitions": "t -p 2",
    "topics truncate": "t --all",
    "topics clone": "t u",
    "groups reset-offsets": "g --all-topics --to earliest",
    "groups rebalance": "g --all",
    "groups delete": "g",
    "groups delete-offsets": "g --topic t",
    "groups clone": "g h",
    "partitions drain": "1 -f {plan}",
    "partitions apply": "{file}",
    "partitions cancel": "--all",
    "partitions reassign": "t:0=1",
    "partitions elect": "--all",
    "partitions move-dir": "t --broker 1 --dir /d",
    "partitions throttle": "clear",
    "configs set": "topic/t retention.ms=1d",
    "configs unset": "topic/t retention.ms",
    "acls add": "--allow a --topic t",
    "acls remove": "--every",
    "users set-scram": "u",
    "users delete": "u",
    "quotas set": "user=a producer_byte_rate=1",
    "quotas unset": "user=a",
    "tokens create": "",
    "tokens renew": "x",
    "tokens expire": "x",
    "txns end": "x",
    "txns abort": "t:0 --start-offset 1",
    "produce": "t --value value",
    "copy": "t u",
    "perf produce": "-n 1 --topic t",
    "perf consume": "--topic t",
    "perf latency": "-n 1 --topic t",
    "brokers loggers": "1",
}
OTHERS = {"cluster zk"}
"""Asks ZooKeeper, and has tests of its own."""
ONLINE = {**LOOKING, **CHANGING}
LEAVES = [path for path in COMMANDS_AND_VERBS if not isinstance(loaded(path), LazyGroup)]


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The files that some of the lines name; and what is a password to who reads one."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("sesame\n"))
    file = tmp_path / "moves.json"
    file.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}')
    yield {"plan": str(tmp_path / "plan.json"), "file": str(file)}


def words(path: str, line: dict[str, str]) -> list[str]:
    return [*path.split(), *ONLINE[path].format(**line).split()]


def test_every_command_is_here() -> None:
    online = {path for path in LEAVES if path not in OFFLINE | OTHERS and not path.startswith(("contexts ", "etl "))}
    assert online == set(ONLINE)


@pytest.mark.parametrize("path", ONLINE)
def test_nobody_at_the_address(kctl: Kctl, line: dict[str, str], path: str) -> None:
    begin = time.process_time()
    ran = kctl("-b", f"127.0.0.1:{free_port()}", "-y", *words(path, line))
    assert ran.code == Exit.UNREACHABLE, ran.err
    assert ran.out == ""
    assert "connection refused" in ran.err
    assert "Traceback" not in ran.err
    assert time.process_time() - begin < 5, "it does not spin"


@pytest.mark.parametrize("path", LOOKING)
def test_nobody_at_the_address_in_json(kctl: Kctl, line: dict[str, str], path: str) -> None:
    ran = kctl("-b", f"127.0.0.1:{free_port()}", "-o", "json", *words(path, line))
    assert ran.code == Exit.UNREACHABLE
    whole = json.loads(ran.out)
    assert (whole["command"], whole["items"]) == (path, [])
    assert "no broker answered" in whole["errors"][0]["error"]


@pytest.fixture(scope="module")
def web_server() -> Iterator[int]:
    """Answers whatever is said with HTTP."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with peer:
                peer.recv(1000)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@pytest.mark.parametrize("path", ONLINE)
def test_something_else_than_kafka(kctl: Kctl, web_server: int, line: dict[str, str], path: str) -> None:
    ran = kctl("-b", f"127.0.0.1:{web_server}", "-y", *words(path, line))
    assert ran.code == Exit.UNREACHABLE, ran.err
    assert "does not speak the Kafka protocol" in ran.err
    assert "Traceback" not in ran.err


NAMES = {
    path: line
    for path, line in ONLINE.items()
    if set(line.split()) & {"t", "g"} and path not in ("topics create", "acls add", "acls check", "partitions move-dir")
}


@pytest.mark.parametrize("path", NAMES)
def test_nothing_of_that_name(on_broker: Kctl, line: dict[str, str], path: str) -> None:
    unlikely = ["no-such-thing" if word in ("t", "g") else word for word in words(path, line)]
    ran = on_broker("-y", *unlikely)
    assert ran.code == Exit.NOT_FOUND, ran.err
    assert "no-such-thing" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("path", LEAVES)
def test_an_option_that_is_not_there(kctl: Kctl, path: str) -> None:
    ran = kctl(*path.split(), "--frobnicate")
    assert ran.code == Exit.USAGE
    assert f"kctl {path} --help" in ran.err
