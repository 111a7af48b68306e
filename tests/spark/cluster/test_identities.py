from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kafkad_etl.cluster import topics
from kafkad_etl.cluster.identities import Identities
from kafkad_etl.cluster.topics import Topic
from kafkad_etl.messages import Batch
from kctl.errors import KctlError


def batch(*names: str) -> Batch:
    return Batch(batch=1, end={name: {0: 5} for name in names}, rows_read=5, rows_written=5, seconds=1)


def answers(monkeypatch: pytest.MonkeyPatch, *each: Exception | None) -> list[list[str]]:
    """What is asked for. Questions fail with these exceptions, and those after them do not."""
    asked: list[list[str]] = []
    failures: Iterator[Exception | None] = iter(each)

    def find(_: object, names: Sequence[str]) -> dict[str, Topic | None]:
        asked.append(list(names))
        if failure := next(failures, None):
            raise failure
        return {name: Topic(name, (0,), f"id of {name}") for name in names}

    monkeypatch.setattr(topics, "find", find)
    return asked


def closable() -> Any:
    return SimpleNamespace(close=lambda: None)


def test_a_topic_is_asked_for_once_if_its_id_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch)
    learned: list[Mapping[str, str]] = []
    identities = Identities(closable(), {"a"}, learned.append, pytest.fail)
    for names in (["a"], ["a", "b"], ["a", "b"], ["a", "b", "c"]):
        identities.offer(batch(*names))
    identities.close()
    assert asked == [["b"], ["c"]]
    assert learned == [{"b": "id of b"}, {"c": "id of c"}]


def test_who_does_not_answer_is_asked_again_after_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, KctlError("no broker answered"), KctlError("no broker answered"))
    learned: list[Mapping[str, str]] = []
    warnings: list[str] = []
    identities = Identities(closable(), (), learned.append, warnings.append)
    for _ in range(4):
        identities.offer(batch("a"))
    identities.close()
    assert len(asked) == 3
    assert learned == [{"a": "id of a"}]
    assert warnings == ["the ids of topic a are not recorded yet: no broker answered"]
