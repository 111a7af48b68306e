"""The output of the offline commands, as it was approved; and bad surroundings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkad.wire.records import Record, build_batch
from kctl.errors import Exit
from tests.kctl.conftest import Kctl
from tests.kctl.segments.new_groups import write_log

LOGS = Path(__file__).parents[2] / "golden" / "logs"
Approved = Callable[[str, str], None]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("dump-segment", ["main/tx-0", "--offsets", "27:40"]),
        ("dump-segment-batches", ["main/compact-tx-0", "--batches"]),
        ("dump-segment-groups", ["main/__consumer_offsets-0"]),
        ("dump-segment-transactions", ["main/__transaction_state-1"]),
        ("dump-segment-damaged", ["damaged/before/dmg-flip-last-0", "--offsets", "94:"]),
    ],
)
def test_dump_segment(
    kctl: Kctl, approved: Approved, monkeypatch: pytest.MonkeyPatch, name: str, arguments: list[str]
) -> None:
    monkeypatch.chdir(LOGS)
    ran = kctl("dump-segment", "--utc", *arguments)
    approved(name, ran.out + ran.err)


def test_new_groups(kctl: Kctl, approved: Approved, tmp_path: Path) -> None:
    write_log(tmp_path / "__consumer_offsets-0")
    approved("dump-segment-new-groups", kctl("dump-segment", "--utc", tmp_path / "__consumer_offsets-0").out)


def test_dump_index(kctl: Kctl, approved: Approved) -> None:
    index = LOGS / "main" / "tx-0" / f"{30:020d}.index"
    approved("dump-index-lookup", kctl("dump-index", index, "--lookup", 60).out)


def test_check_log(kctl: Kctl, approved: Approved, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(LOGS / "damaged" / "before")
    found = kctl("check-log", *sorted(path.name for path in Path().glob("dmg-*")))
    assert found.code == Exit.FINDINGS
    approved("check-log", found.out)


@pytest.mark.parametrize("name", ["a.b.c-0", "größe-0", "n" * 247 + "-0"])
def test_any_name_of_a_directory_will_do(kctl: Kctl, tmp_path: Path, name: str) -> None:
    partition = tmp_path / name
    shutil.copytree(LOGS / "main" / "codec-gzip-0", partition)
    (row, *_) = kctl("dump-segment", partition, "-o", "json", "--limit", 1).out.splitlines()
    assert json.loads(row)["file"].startswith(f"{partition}/")
    assert kctl("check-log", tmp_path, "-o", "name").out == f"{tmp_path}/meta.properties\n"
    assert kctl("dump-segment", partition, "--batches").code == 0


def test_text_that_moves_cursors_or_is_no_text(kctl: Kctl, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    headers = (("\udcff", b"\x1b[2J"), ("e\u0301", None))
    path.write_bytes(build_batch([Record(0, 2**62, b"\x1b]0;x\x07", "\u202e\n".encode(), headers)]))
    ran = kctl("dump-segment", path, "--no-headers", "--utc")
    assert ran.code == 0
    (line,) = ran.out.splitlines()
    assert line.isprintable()
    (line,) = kctl("dump-segment", path, "-o", "json").out.splitlines()
    assert json.loads(line)["timestamp_ms"] == 2**62
    assert kctl("dump-segment", path, "--kafka-format").code == 0


def test_reader_that_goes_away() -> None:
    command = [sys.executable, "-m", "kctl", "dump-segment", str(LOGS / "main"), "-o", "json"]
    environment = {**os.environ, "PYTHONPATH": str(LOGS.parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_narrow_terminal(kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    ran = kctl("dump-segment", LOGS / "main" / "tx-0", "--no-pager", "--color", "never")
    assert max(map(len, ran.out.splitlines()[:200])) <= 60
    assert "…" in ran.out
