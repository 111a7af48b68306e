"""The file with a job's runs: what is appended is read again, whatever else happens to the file."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kafkad_etl.checkpoint import history
from kafkad_etl.checkpoint.history import Damage, History, RunBegan, RunEnded


def began(number: int) -> RunBegan:
    known: Any = {"mode": "batch", "host": "h", "pid": 1, "lock": "/l"}
    return RunBegan(run=str(number), job="orders", began_ms=number, **known)


def ended(number: int, code: int = 0, error: str = "") -> RunEnded:
    result = "failed" if code else "done"
    return RunEnded(
        run=str(number),
        job="orders",
        began_ms=number,
        ended_ms=number + 1500,
        mode="batch",
        result=result,
        code=code,
        error=error,
    )


@pytest.fixture
def file(tmp_path: Path) -> History:
    return History(tmp_path / "logs" / "orders.runs.jsonl")


def test_runs_are_read_in_the_order_in_which_they_began(file: History) -> None:
    for line in (began(1), began(2), ended(2, 7, "in progress"), ended(1), began(3)):
        file.add(line)
    found, damages = file.runs()
    assert [(run.began_ms, run.ended and run.ended.code) for run in found] == [(1, 0), (2, 7), (3, None)]
    assert found[0].ended is not None and found[0].ended.seconds == 1.5
    assert damages == []


def test_a_job_that_has_never_run(file: History) -> None:
    assert file.runs() == ([], [])


def test_damaged_lines_are_named_and_skipped(file: History) -> None:
    file.add(began(1))
    with file.path.open("ab") as torn:
        torn.write(b'{"type":"ended","run"')
    file.add(ended(1))
    with file.path.open("ab") as torn:
        torn.write(b"\xff\x00\n[]\n")
    found, damages = file.runs()
    assert [run.ended and run.ended.code for run in found] == [0]
    assert damages == [Damage(file.path, line) for line in (2, 4, 5)]
    assert str(damages[0]) == f"{file.path}:2 is damaged and was skipped"


def test_a_large_file_keeps_its_newest_runs_and_the_last_success(
    file: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "LARGE", 20_000)
    file.add(ended(0))
    for number in range(1, 500):
        file.add(began(number))
        file.add(ended(number, code=3, error="x" * number))
        assert file.path.stat().st_size < 22_000
    numbers = [run.began_ms for run in file.runs()[0]]
    assert numbers[0] == 0
    assert numbers[1:] == list(range(numbers[1], 500)) and len(numbers) > 10


def test_several_writers_lose_nothing(file: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while one of them cuts the file."""
    monkeypatch.setattr(history, "LARGE", 8_000)

    def write(first: int) -> None:
        for number in range(first, first + 40):
            file.add(ended(number))

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 40, 80)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = ended(1000)
    file.add(last)
    found, damages = file.runs()
    assert damages == [] and found[-1].ended == last
    lines = file.path.read_bytes().splitlines()
    assert len(lines) == len(set(lines)) == len(found)


def test_histories_of_a_directory(tmp_path: Path) -> None:
    environment = {"KAFKAD_ETL_STATE": str(tmp_path)}
    assert history.histories(environment) == []
    history.history_of("orders", environment).add(began(1))
    assert [each.path.name for each in history.histories(environment)] == ["orders.runs.jsonl"]
