from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bench.figures import create, new_topic
from tests.broker import KafkadProcess
from tests.clients.probes import Asker
from tests.kctl.conftest import Kctl

WAIT = 200
"""Seconds that a process may take on a busy machine."""

Feed = Callable[[str | bytes], None]
NewTopic = Callable[..., str]


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Feed]:
    """Makes this the standard input."""
    with ExitStack() as stack:

        def give(data: str | bytes) -> None:
            path = tmp_path / f"input-{uuid.uuid4().hex}"
            path.write_bytes(data.encode() if isinstance(data, str) else data)
            monkeypatch.setattr("sys.stdin", stack.enter_context(path.open()))

        yield give


@pytest.fixture
def new_name() -> Callable[[], str]:
    return lambda: f"records-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(broker: KafkadProcess, new_name: Callable[[], str]) -> NewTopic:
    """`topic(4)` creates one with so many partitions and gives its name."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = new_name()
        asker = Asker(broker.port)
        create(asker, new_topic(name, partitions, **configs))
        asker.client.close()
        return name

    return make


@pytest.fixture
def damaged(broker: KafkadProcess, on_broker: Kctl, topic: NewTopic) -> str:
    """A topic of eight batches with a record each, value-0 to value-7, of which the one at offset 2 is damaged."""
    name = topic()
    for number in range(8):
        assert on_broker("produce", name, "--value", f"value-{number}").code == 0
    log = next(broker.log_directory().glob(f"{name}-0/*.log"))
    log.write_bytes(log.read_bytes().replace(b"value-2", b"valve-2"))
    return name


def until(condition: Callable[[], bool], turn: Callable[[], object] = lambda: None) -> None:
    """Has the work go on until it shows; a member may take its time on a busy machine."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        if condition():
            return
        turn()
        time.sleep(0.05)
    raise AssertionError("it did not come to that")
