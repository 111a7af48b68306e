"""The functions that complete names. What real shells make of them is in test_shells."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest

from kctl.command import cluster_names
from kctl.command.cluster_names import broker_ids, config_names, group_names, keep, topic_names, within
from kctl.settings import Settings
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl, until
from tests.kctl.test_cli import loaded


@pytest.fixture(scope="module")
def topics(broker: KafkadProcess) -> list[str]:
    from kafkad.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
    from kctl.reach.session import open_session

    names = ["completion.a", "completion.b"]
    settings = Settings()
    settings.bootstrap = broker.bootstrap
    session = open_session(settings)
    session.call(
        CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names],
            timeout_ms=9000,
        )
    )
    session.close()
    return names


def context(broker: KafkadProcess, **parameters: Any) -> click.Context:
    made = click.Context(click.Command("x"), obj=Settings())
    made.obj.bootstrap = broker.bootstrap
    made.params = parameters
    return made


PARAMETER = click.Argument(["x"])


def names(function: Any, context: click.Context, incomplete: str = "") -> list[str]:
    """Once it is there: on a busy machine brokers may need more than the time that completion gives them."""
    found: list[str] = []

    def is_there() -> bool:
        found[:] = function(context, PARAMETER, incomplete)
        return bool(found)

    until(is_there, f"{function.__name__} finds something")
    return found


def test_names_of_a_broker(broker: KafkadProcess, topics: list[str]) -> None:
    assert names(topic_names, context(broker), "completion.") == topics
    assert names(broker_ids, context(broker)) == ["1"]
    assert "retention.ms" in names(config_names, context(broker, entities=("topic/x",)))
    assert "log.retention.ms" in names(config_names, context(broker, entities=("broker/1",)), "log.")


def test_groups_of_a_broker(broker: KafkadProcess, topics: list[str], on_broker: Kctl, tmp_path: Path) -> None:
    reset = ("groups", "reset-offsets", "completion.g", "--topic", topics[0], "--to", "earliest", "-y")
    assert on_broker(*reset, "--undo-dir", tmp_path).code == 0
    assert names(group_names, context(broker), "completion.") == ["completion.g"]


def test_second_time_nobody_is_asked(broker: KafkadProcess, topics: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(topic_names, context(broker), "completion.") == topics
    monkeypatch.setattr(cluster_names, "_live_names", None)
    assert topic_names(context(broker), PARAMETER, "completion.b") == ["completion.b"]
    with pytest.raises(TypeError):
        cluster_names._live_names(Settings(), "topics")


def test_nobody_there_is_nothing_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    made = click.Context(click.Command("x"), obj=Settings())
    made.obj.bootstrap = "127.0.0.1:1"
    assert topic_names(made, PARAMETER, "") == []
    made.obj.bootstrap = ":"
    assert topic_names(made, PARAMETER, "") == []
    assert capsys.readouterr() == ("", "")


def test_internal_topics_are_for_who_asks(monkeypatch: pytest.MonkeyPatch, broker: KafkadProcess) -> None:
    monkeypatch.setattr(cluster_names, "_live_names", lambda *_: ["__consumer_offsets", "a"])
    assert topic_names(context(broker), PARAMETER, "") == ["a"]
    assert topic_names(context(broker), PARAMETER, "_") == ["__consumer_offsets"]


def test_what_takes_too_long_is_left() -> None:
    begin = time.monotonic()
    assert within(0.05, lambda: time.sleep(5) or ["late"]) is None
    assert time.monotonic() - begin < 4
    assert within(5, lambda: ["a"]) == ["a"]


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("groups list", "--topic"),
        ("groups reset-offsets", "--group"),
        ("groups reset-offsets", "--topic"),
        ("perf produce", "--topic"),
        ("consume", "--group"),
        ("raw", "--broker"),
    ],
)
def test_options_that_take_names(monkeypatch: pytest.MonkeyPatch, line: str, option: str) -> None:
    monkeypatch.setattr(cluster_names, "_live_names", lambda *_: ["there is"])
    made = click.Context(loaded(line), obj=Settings())
    (parameter,) = [parameter for parameter in made.command.params if option in parameter.opts]
    assert [item.value for item in parameter.shell_complete(made, "there")] == ["there is"]


def test_completing_what_was_kept_imports_little(tmp_path: Path) -> None:
    """A shell waits for it at each key."""
    keep(str(tmp_path / "kctl" / "localhost:9092" / "topics"), ["a1", "b"])
    code = "import sys; from kctl.cli import run; run([]); print(*sys.modules)"
    asked = {"XDG_CACHE_HOME": str(tmp_path), "_KCTL_COMPLETE": "bash_complete", "COMP_LINE": "kctl topics list a"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | asked, check=True)
    found, _, modules = done.stdout.partition("\n")
    assert found == "plain,a1"
    unwanted = {"asyncio", "rich", "yaml", "json", "ssl", "logging", "dataclasses", "subprocess", "hashlib", "csv"}
    assert not unwanted & set(modules.split())
    assert len(modules.split()) < 190
