from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkad_etl.checkpoint.overlaps import places_of, refuse
from kafkad_etl.errors import EtlError, EtlExit
from tests.spark.jobs import job

JSON = {"type": "json", "path": "files"}
STATE = {"KAFKAD_ETL_STATE": "/state"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "files" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("files")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(
    sink: dict[str, Any],
    environment: dict[str, str] = STATE,
    files: Sequence[tuple[str, str]] = (),
    **blocks: Any,
) -> str:
    try:
        refuse(job(sink=sink, **blocks), files, environment)
    except EtlError as error:
        assert error.exit_code == EtlExit.USAGE and error.key == "sink.path"
        return error.what.removeprefix("sink.path: ")
    return ""


def reading(path: str) -> dict[str, Any]:
    return {"files": {"format": "json", "path": path, "schema": "a INT"}}


def looking_up(path: str) -> dict[str, Any]:
    return {"lookups": {"names": {"format": "csv", "path": path, "schema": "a INT"}}}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("files", "files is also source.files.path"),
        ("./files/sub/../", "files is also source.files.path"),
        ("link/", "files is also source.files.path"),
        ("link/sub", "files is above source.files.path, link/sub"),
        ("file:HERE/files/sub", "files is above source.files.path, file:"),
        ("file://HERE/files", "files is also source.files.path"),
        ("file://localhostHERE/files", "files is also source.files.path"),
        (".", "files is below source.files.path, ."),
        ("files/*.json", "files is above source.files.path, files/*.json"),
        ("~/files", "files is also source.files.path"),
        ("f*s", "files is also source.files.path"),
        ("{other,[^a]iles}/sub", "files is above source.files.path, {other,"),
        ("filesystem", ""),
        ("*.json", ""),
        ("{other,more}/sub", ""),
        ("s3a://bucket/files", ""),
    ],
)
def test_a_source_is_apart_from_the_sinks_files(
    here: Path, monkeypatch: pytest.MonkeyPatch, path: str, said: str
) -> None:
    monkeypatch.setenv("HOME", str(here))
    path = path.replace("HERE", str(here))
    for sink in (JSON, JSON | {"mode": "overwrite"}, {"type": "delta", "path": "files"}):
        found = told(sink, source=reading(path))
        assert found.startswith(said) and bool(found) == bool(said)


@pytest.mark.parametrize(
    ("sink", "source", "said"),
    [
        ("files", "HERE/g/in*", "files is also source.files.path"),
        ("files", "g/{up,in}*", "files is also source.files.path"),
        ("files/sub", "g/in?", "files/sub is below source.files.path, g/in?"),
        ("files", "g/in*/sub", "files is above source.files.path, g/in*/sub"),
        ("files", "?/*/*.json", "files is above source.files.path, ?/*/*.json"),
        ("files", "over/in*", "files is also source.files.path"),
        ("g", "g/in1", "g is above source.files.path, g/in1"),
        ("g/in1", "g", "g/in1 is below source.files.path, g"),
        ("files", "g/up*", ""),
        ("files/sub", "g/in*/other", ""),
        ("g/other", "g/in1", ""),
    ],
)
def test_links_are_followed_wherever_they_are_on_a_path(here: Path, sink: str, source: str, said: str) -> None:
    (here / "g").mkdir()
    (here / "g" / "in1").symlink_to("../files")
    (here / "g" / "up.json").touch()
    (here / "over").symlink_to("g")
    found = told({"type": "json", "path": sink, "mode": "overwrite"}, source=reading(source.replace("HERE", str(here))))
    assert found.startswith(said.replace("HERE", str(here))) and bool(found) == bool(said)


@pytest.mark.parametrize(
    ("link", "to", "source", "said"),
    [
        ("in/day=1", "../out/feed", "in", "out is above source.files.path, in/day=1"),
        ("in/day=1", "../out", "in", "out is also source.files.path, in/day=1"),
        ("in/day=1/hour=2", "../../out", "in", "out is also source.files.path, in/day=1/hour=2"),
        ("in/day=1/hour=2", "../../out", "in/d*", "out is also source.files.path, HERE/in/day=1/hour=2"),
        ("in/day=1", "../other", "in", "out is above source.files.path, in/day=1/further"),
        ("out/day=1", "../in", "in", "out/day=1 is also source.files.path, in"),
        ("in/day=1", "../other/x", "in", ""),
        ("in/day=1", "day=2", "in", ""),
        ("in/_old", "../out", "in", ""),
        ("in/loop", ".", "in", ""),
        ("out/loop", ".", "in", ""),
        ("in/itself", "itself", "in", ""),
        ("in/gone", "../out/gone", "in", ""),
    ],
)
def test_links_are_followed_that_are_below_what_is_read(here: Path, link: str, to: str, source: str, said: str) -> None:
    for directory in ("in/day=2", "out/feed", "other/x"):
        (here / directory).mkdir(parents=True)
    (here / "other" / "further").symlink_to("../out/feed")
    (here / link).parent.mkdir(exist_ok=True)
    (here / link).symlink_to(to)
    assert told({"type": "json", "path": "out"}, source=reading(source)) == said.replace("HERE", str(here))


def test_what_is_read_as_it_is_written_is_told_before_links(here: Path) -> None:
    (here / "in").mkdir()
    (here / "in" / "day=1").symlink_to("../files/sub")
    (here / "files" / "day=1").symlink_to("../in")
    (here / "files" / "more").symlink_to("sub")
    assert told(JSON, source=reading("{in,link}")) == "files is also source.files.path, {in,link}"


def test_the_links_of_a_sink_are_looked_for_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, scandir = [], os.scandir
    monkeypatch.setattr("os.scandir", lambda path: (listed.append(os.path.realpath(path)), scandir(path))[1])
    assert not told(JSON | {"mode": "overwrite"}, source=reading("in"), transform=looking_up("names"))
    assert listed.count(str(here / "files")) == 1


def test_links_are_followed_that_are_below_a_lookup(here: Path) -> None:
    (here / "in").mkdir()
    (here / "in" / "day=1").symlink_to("../files/sub")
    found = told(JSON | {"mode": "overwrite"}, transform=looking_up("in"))
    assert found == "files is above transform.lookups.names.path, in/day=1"


def test_of_many_links_some_are_looked_at(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad_etl.checkpoint.overlaps._MOST_LISTED", 3)
    for number in range(20):
        (here / "many" / str(number)).mkdir(parents=True)
        (here / "many" / str(number) / "link").symlink_to("../../files")
    assert not told(JSON, source=reading("many"))


@pytest.mark.parametrize("to", ["../precious", ".", "day=2"])
def test_what_removes_the_files_of_a_sink_wants_no_links_to_directories_in_it(here: Path, to: str) -> None:
    (here / "precious").mkdir()
    (here / "files" / "day=2").mkdir()
    (here / "files" / "sub" / "link").symlink_to(here / "files" / to)
    said = "files/sub/link is a link to a directory"
    for mode in ("overwrite", "overwrite_partitions"):
        assert told(JSON | {"mode": mode}) == said
    assert told({"type": "delta", "path": "files", "compact": {"expire_after": "7d"}}) == said
    assert not told(JSON) and not told({"type": "delta", "path": "files", "mode": "overwrite"})
    (here / "files" / "sub").rename(here / "files" / "_sub")
    assert not told(JSON | {"mode": "overwrite"}), "which nobody takes for rows"


def test_of_a_pattern_that_matches_much_a_part_is_looked_at(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad_etl.checkpoint.overlaps._MOST", 3)
    for number in range(20):
        (here / "many" / str(number)).mkdir(parents=True)
    assert [place.parts[-2] for place in places_of("many/*/x")].count("*") == 1
    assert len(places_of("many/*/x")) <= 4


@pytest.mark.parametrize(
    ("sink", "source", "overlap"),
    [
        ("s3a://bucket/a/", "s3a://bucket/a//b", True),
        ("s3a://bucket/a", "S3A://bucket/", True),
        ("s3a://bucket/a", "s3a://bucket/ab", False),
        ("s3a://bucket/a", "s3a://other/a", False),
        ("hdfs:/data/a", "hdfs://name:9000/data", True),
        ("hdfs://name/data/a", "hdfs://NAME:8020/data", True),
        ("hdfs://name/data/a", "hdfs://name:9000/data", False),
        ("hdfs:/data/a", "s3a://data/a", False),
        ("abfs://box@account/a", "abfss://box@account/a/b", True),
    ],
)
def test_stores_have_prefixes(sink: str, source: str, overlap: bool) -> None:
    assert bool(told({"type": "csv", "path": sink}, source=reading(source))) is overlap


def test_a_table_of_iceberg_has_a_part_of_its_warehouse() -> None:
    sink = {"type": "iceberg", "path": "lake", "iceberg": {"table": "shop.orders"}}
    assert told(sink, source=reading("lake/shop/orders/data")).startswith("lake/shop/orders is above source.files.path")
    assert told(sink, source=reading("lake/shop")).startswith("lake/shop/orders is below source.files.path")
    assert not told(sink, source=reading("lake/shop/others"))
    rest = {"table": "a.b", "catalog": {"type": "rest", "url": "http://c"}}
    assert not told({"type": "iceberg", "iceberg": rest}, source=reading("lake"))


def test_what_a_lookup_needs_is_not_removed(here: Path) -> None:
    for mode in ("append", "overwrite"):
        found = told(JSON | {"mode": mode}, transform=looking_up("files/names.csv"))
        assert found == "files is above transform.lookups.names.path, files/names.csv"
    assert told(JSON | {"mode": "overwrite"}, transform=looking_up("files"))
    (here / "files" / "latest").symlink_to("sub")
    assert not told(JSON, transform=looking_up("files"))  # rows of earlier runs
    hidden = JSON | {"path": "data/_out", "mode": "overwrite"}
    assert not told(hidden, transform=looking_up("data"), source=reading("data")), "who reads data does not see it"


def test_a_checkpoint_is_not_among_the_sinks_files(here: Path) -> None:
    assert told(JSON, run={"checkpoint": "files/state"}) == f"files is above run.checkpoint, {here}/files/state"
    assert told(JSON, run={"checkpoint": "files"}) == f"files is also run.checkpoint, {here}/files"
    assert told(JSON, run={"checkpoint": "."}).startswith("files is below run.checkpoint")
    assert told({"type": "delta", "path": "s3a://b/t"}, run={"checkpoint": "s3a://b/t/state"})
    assert not told(JSON, run={"checkpoint": "files/_checkpoint"})  # which nobody takes for rows


def test_the_working_directory_with_the_default_checkpoint_is_no_sink(here: Path) -> None:
    found = told({"type": "json", "path": ".", "mode": "overwrite"}, environment={})
    assert found == f". is above run.checkpoint, {here}/.etl/orders-to-lake"


def test_overwriting_leaves_the_working_directory_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, mode, said in (
        (".", "overwrite", f". is also the working directory, {here}"),
        ("..", "overwrite", f".. is above the working directory, {here}"),
        ("files", "overwrite", ""),
        (".", "append", ""),
    ):
        assert told({"type": "json", "path": path, "mode": mode}) == said
    assert not told({"type": "delta", "path": ".", "mode": "overwrite"}), "which removes what its log has"
    (here / "link").unlink()
    (here / "_jobs").mkdir()
    monkeypatch.chdir("_jobs")
    assert not told({"type": "json", "path": "..", "mode": "overwrite"})


def test_files_that_the_job_needs_are_not_among_the_sinks(here: Path) -> None:
    for mode in ("append", "overwrite"):
        sink = JSON | {"mode": mode}
        found = told(sink, files=[("the job file", "job.yaml"), ("transform.file", "files/a.sql")])
        assert found == "files is above transform.file, files/a.sql"
        assert not told(sink, files=[("the job file", "files/_jobs/job.yaml"), ("transform.file", "a.sql")])
        assert told(sink, run={"textfile": "files/sub"}) == "files is above run.textfile, files/sub"
        assert told(sink, run={"textfile": "files"}) == "files is also run.textfile, files"
        assert not told(sink, run={"textfile": "."})
    (here / "job.yaml").touch()
    (here / "files" / "link.yaml").symlink_to("../job.yaml")
    assert told(JSON, files=[("the job file", "files/link.yaml")]), "the link would go"


def test_other_sinks_have_no_files() -> None:
    assert not told({"type": "none"}, source=reading("/"))
