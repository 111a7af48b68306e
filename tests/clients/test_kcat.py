"""kcat lists the cluster, produces and consumes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pytest

from tests.clients.conftest import Broker
from tests.clients.tools import normalised

pytestmark = [pytest.mark.slow, pytest.mark.client("kcat")]


@pytest.fixture
def kcat(broker: Broker) -> Callable[..., str]:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")

    def run(*arguments: str, stdin: str = "") -> str:
        command = ["kcat", "-q", "-b", broker.bootstrap, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True, timeout=60).stdout

    return run


def test_list(kcat: Callable[..., str], name: Callable[[], str]) -> None:
    topic = name()
    kcat("-P", "-t", topic, stdin="one\n")
    lines = normalised(kcat("-L", "-t", topic)).splitlines()
    assert " 1 brokers:" in lines
    assert "  broker 1 at HOST:PORT (controller)" in lines
    assert f'  topic "{topic}" with 1 partitions:' in lines
    assert "    partition 0, leader 1, replicas: 1, isrs: 1" in lines


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(kcat: Callable[..., str], name: Callable[[], str], codec: str) -> None:
    topic = name()
    lines = "".join(f"k{i}:v{i}\n" for i in range(50))
    kcat("-P", "-t", topic, "-p", "0", "-K", ":", "-z", codec, stdin=lines)
    assert kcat("-C", "-t", topic, "-p", "0", "-K", ":", "-e") == lines
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "45", "-e", "-f", "%o %k %s\n") == "".join(
        f"{i} k{i} v{i}\n" for i in range(45, 50)
    )


def test_offsets_by_time(kcat: Callable[..., str], name: Callable[[], str]) -> None:
    topic = name()
    kcat("-P", "-t", topic, "-p", "0", stdin="one\ntwo\n")
    assert kcat("-Q", "-t", f"{topic}:0:-1").strip() == f"{topic} [0] offset 2"
    assert kcat("-Q", "-t", f"{topic}:0:1").strip() == f"{topic} [0] offset 0"
