from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkad_etl.driver.tasks.executors import Executors


def session(master: str, members: list[int]) -> Any:
    """`members`: how many the driver knows, itself included, each time it is asked."""
    counts = iter(members)
    status = SimpleNamespace(size=lambda: next(counts))
    java = SimpleNamespace(sc=lambda: SimpleNamespace(getExecutorMemoryStatus=lambda: status))
    context = SimpleNamespace(master=master, getConf=lambda: {"spark.executor.memory": "4g"})
    return SimpleNamespace(sparkContext=context, _jsc=java)


@pytest.mark.parametrize(
    ("master", "members", "warned"),
    [
        ("local[2]", [], False),
        ("yarn", [1, 1, 1], True),
        ("yarn", [1, 2], False),
        ("spark://a:7077", [1, 1, 1], True),
    ],
)
def test_tasks_that_wait_for_the_first_executor_are_told_of_once(master: str, members: list[int], warned: bool) -> None:
    said: list[str] = []
    executors = Executors(session(master, members), said.append)
    for now in (0.0, 29.0, 30.0, 31.0, 99.0):
        executors.look(now)
    assert bool(said) == warned
    assert all(
        text.startswith(f"{master} has not provided an executor for 30 s") and "room for 4g" in text for text in said
    )
    assert len(said) <= 1
