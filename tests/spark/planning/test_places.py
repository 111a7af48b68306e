from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkad_etl.errors import EtlExit
from kafkad_etl.planning.databases import addresses
from kafkad_etl.planning.places import faults, missing
from tests.kctl.conftest import Kctl
from tests.spark.jobs import job


def told(sink: dict[str, Any], connect: Callable[..., Any] = socket.create_connection) -> list[str]:
    found = list(faults(job(sink=sink), connect))
    assert {error.exit_code for error in found} <= {EtlExit.CLUSTER}
    return [error.what for error in found]


def table(url: str, name: str = "orders") -> dict[str, Any]:
    return {"type": "jdbc", "jdbc": {"url": url, "table": name}}


def test_a_directory_is_made_where_one_can_be_made(tmp_path: Path) -> None:
    assert told({"type": "parquet", "path": str(tmp_path / "a" / "b")}) == []
    assert told({"type": "parquet", "path": f"file://{tmp_path}/a"}) == []
    assert told({"type": "parquet", "path": "s3a://bucket/a"}) == []


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    text = f"sink.path: {tmp_path / 'a'} is a file, but the sink needs a directory"
    assert told({"type": "json", "path": str(tmp_path / "a")}) == [text]
    assert told({"type": "json", "path": str(tmp_path / "a" / "b")}) == [text]


def test_a_directory_that_cannot_be_written_is_found_by_writing(tmp_path: Path) -> None:
    assert told({"type": "csv", "path": "/proc/lake"})[0].startswith("sink.path: /proc is not writable: ")
    assert told({"type": "csv", "path": str(tmp_path / "a")}) == []
    assert list(tmp_path.iterdir()) == []


def test_a_mount_point_has_no_place_beside_it_for_files_to_come_from() -> None:
    if os.stat("/dev/shm").st_dev == os.stat("/dev").st_dev:
        pytest.skip("/dev/shm is no mount point here")
    found = told({"type": "csv", "path": "/dev/shm"})
    assert found == ["sink.path: /dev/shm is a mount point, and files cannot be renamed into it from the outside"]


@pytest.mark.parametrize(
    ("path", "lacks"),
    [
        ("in", ""),
        ("file:HERE/in", ""),
        ("file://HERE/in/*.json", ""),
        ("file://localhostHERE/in", ""),
        ("in/{a,b}/c", ""),
        ("HERE/nix", "HERE/nix"),
        ("nix/*.json", "HERE/nix"),
        ("file:HERE/nix/a?c", "HERE/nix"),
        ("s3a://bucket/nix", ""),
    ],
)
def test_what_is_read_has_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, lacks: str) -> None:
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path)
    lookup = {"format": "csv", "path": path.replace("HERE", str(tmp_path)), "schema": "a INT"}
    told = [f"{lacks.replace('HERE', str(tmp_path))} does not exist"] if lacks else []
    errors = list(missing(job(transform={"lookups": {"names": lookup}})))
    assert [error.what for error in errors] == [f"transform.lookups.names.path: {text}" for text in told]
    assert [error.what for error in missing(job(source={"files": lookup}))] == [
        f"source.files.path: {text}" for text in told
    ]
    relative = "" if "HERE" in path else "; it is relative to the current directory"
    assert all(error.hints == (f"create it, or set transform.lookups.names.path{relative}",) for error in errors)


def test_a_table_of_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    assert "does not exist" in told(table(f"jdbc:sqlite:{path}"))[0]
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE Orders (id INTEGER)")
    database.close()
    assert told(table(f"jdbc:sqlite:{path}?busy_timeout=5")) == []
    assert told(table(f"jdbc:sqlite:{path}", 'main."orders"')) == []
    assert told(table(f"jdbc:sqlite:{path}", "sales")) == [f"sink.jdbc.table: {path} has no table sales"]
    assert told(table("jdbc:sqlite::memory:")) == []
    path.write_bytes(b"not a database, but a text that is longer than a header")
    assert "file is not a database" in told(table(f"jdbc:sqlite:{path}"))[0]


def test_a_server_that_answers_and_one_that_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert told(table(f"jdbc:postgresql://127.0.0.1:{port}/shop?user=u")) == []
        assert told(table(f"jdbc:postgresql://127.0.0.1:1,127.0.0.1:{port}/shop")) == [], "one is enough"
    (text,) = told(table(f"jdbc:postgresql://127.0.0.1:{port}/shop"))
    assert text == f"sink.jdbc.url: the database is not responding at 127.0.0.1:{port}: Connection refused"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:postgresql://db/shop", [("db", 5432)]),
        ("jdbc:postgresql://db:6000/shop?ssl=true", [("db", 6000)]),
        ("jdbc:postgresql://a:1,b/shop", [("a", 1), ("b", 5432)]),
        ("jdbc:postgresql://[::1]:7/shop", [("::1", 7)]),
        ("jdbc:postgresql://[::1]/shop", [("::1", 5432)]),
        ("jdbc:postgresql:shop", [("localhost", 5432)]),
        ("jdbc:postgresql:///shop", [("localhost", 5432)]),
    ],
)
def test_addresses_in_urls(url: str, expected: list[tuple[str, int]]) -> None:
    assert list(addresses(url)) == expected


def test_validate_tells_the_line(kctl: Kctl, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "version: 1\nname: j\nsource: {files: {format: parquet, path: x, schema: 'id INT'}}\n"
        "sink:\n  type: jdbc\n  jdbc:\n    url: jdbc:sqlite:nowhere.db\n    table: t\n"
    )
    ran = kctl("etl", "validate", path)
    assert ran.code == EtlExit.CLUSTER
    assert f"{path}:7 sink.jdbc.url: database nowhere.db does not exist" in ran.err
    assert kctl("etl", "validate", path, "--offline").code == EtlExit.DONE


def test_a_directory_for_metrics_has_to_be_there(tmp_path: Path) -> None:
    assert list(faults(job(run={"textfile": str(tmp_path)}))) == []
    (fault,) = faults(job(run={"textfile": f"{tmp_path}/a"}))
    assert fault.exit_code == EtlExit.USAGE
    assert fault.what == f"run.textfile: {tmp_path}/a is not writable: no such file or directory"
