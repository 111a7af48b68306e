from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from kafkad_etl.checkpoint.checkpoints import (
    Checkpoint,
    Files,
    Record,
    Standing,
    beside,
    differences,
    directory_of,
    facts,
    guard,
    pieces_missing,
    record_of,
    standing_of,
)
from kafkad_etl.errors import EtlError, EtlExit
from tests.spark.checkpoint_files import spark_checkpoint
from tests.spark.jobs import job

MADE = "2026-11-21T23:00:00Z"
WINDOWED = {
    "watermark": {"column": "ts", "delay": "10 minutes"},
    "sql": "SELECT window, count(*) AS n FROM source GROUP BY window(ts, '5 minutes')",
}


def record(**blocks: object) -> Record:
    return record_of(job(**blocks), "c1", MADE, {"orders": "aa"}, "4.0.0")


def test_the_standing_is_where_the_last_committed_batch_ended(tmp_path: Path) -> None:
    ends = [{"orders": {0: 50, 1: 54}}, {"orders": {0: 100, 1: 104}}]
    spark_checkpoint(tmp_path, ends, committed=1, watermark_ms=1795258320000)
    standing = standing_of(Checkpoint(str(tmp_path), tmp_path).files())
    assert standing.query_id == "8aa52cd6-6a6b-4db2-97c8-45f10fb719df"
    assert (standing.batch, standing.planned) == (0, 1)
    assert standing.reached == {"orders": {0: 50, 1: 54}}
    assert standing.watermark_ms == 1795258320000


def test_before_the_first_commit_the_standing_is_where_the_first_run_began(tmp_path: Path) -> None:
    spark_checkpoint(tmp_path, [{"orders": {0: 50}}], start={"orders": {0: 7}}, committed=0)
    standing = standing_of(Checkpoint(str(tmp_path), tmp_path).files())
    assert (standing.batch, standing.planned, standing.reached) == (None, 0, {"orders": {0: 7}})


@pytest.mark.parametrize(
    ("gone", "says"),
    [("metadata", "the file metadata is missing"), ("offsets/1", "the file offsets/1 is missing")],
)
def test_a_checkpoint_that_lacks_a_piece_is_refused(tmp_path: Path, gone: str, says: str) -> None:
    spark_checkpoint(tmp_path, [{"orders": {0: 50}}, {"orders": {0: 60}}])
    (tmp_path / gone).unlink()
    files = Checkpoint(str(tmp_path), tmp_path).files()
    with pytest.raises(EtlError) as refused:
        guard(record(), record(), files, str(tmp_path))
    assert refused.value.exit_code == EtlExit.CHECKPOINT
    assert says in " ".join(refused.value.hints)
    assert "--reset-checkpoint" in refused.value.hints[-1]


@pytest.mark.parametrize("content", [b"", b"\0" * 40])
@pytest.mark.parametrize("name", ["metadata", "offsets/0", "offsets/1", "commits/0"])
def test_a_checkpoint_with_a_file_that_a_power_failure_emptied_is_refused(
    tmp_path: Path, name: str, content: bytes
) -> None:
    spark_checkpoint(tmp_path, [{"orders": {0: 50}}, {"orders": {0: 60}}], start={"orders": {0: 7}}, committed=1)
    (tmp_path / name).write_bytes(content)
    checkpoint = Checkpoint(str(tmp_path), tmp_path)
    with pytest.raises(EtlError) as refused:
        guard(record(), record(), checkpoint.files(), str(tmp_path))
    assert refused.value.exit_code == EtlExit.CHECKPOINT
    assert refused.value.hints[0] == f"the file {name} is empty"
    assert "--reset-checkpoint" in refused.value.hints[-1]
    assert (checkpoint.standing().batch, checkpoint.standing().planned) == (0, 1)


@pytest.mark.parametrize("kept", [2, 7, -1])
@pytest.mark.parametrize("name", ["metadata", "offsets/0", "offsets/1", "commits/0", "sources/0/0"])
def test_a_checkpoint_with_a_file_that_a_power_failure_cut_off_is_refused(tmp_path: Path, name: str, kept: int) -> None:
    committed = 0 if name.startswith("sources") else 1
    ends = [{"orders": {0: 50}}, {"orders": {0: 60}}]
    spark_checkpoint(tmp_path, ends, start={"orders": {0: 7}}, committed=committed)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:kept])
    checkpoint = Checkpoint(str(tmp_path), tmp_path)
    with pytest.raises(EtlError) as refused:
        guard(record(), record(), checkpoint.files(), str(tmp_path))
    assert refused.value.exit_code == EtlExit.CHECKPOINT
    assert str(tmp_path) in refused.value.what
    assert f"the file {name} is damaged" in refused.value.hints
    assert "--reset-checkpoint" in refused.value.hints[-1]
    assert f"the file {name} is damaged" in checkpoint.unfinished()
    assert checkpoint.standing().batch == (0 if committed else None)


@pytest.mark.parametrize("name", ["offsets/1", "commits/1"])
def test_a_file_that_was_cut_off_at_the_end_of_a_line_is_damaged_as_well(tmp_path: Path, name: str) -> None:
    spark_checkpoint(tmp_path, [{"orders": {0: 50}}, {"orders": {0: 60}}])
    (tmp_path / name).write_text((tmp_path / name).read_text().rpartition("\n")[0])
    assert pieces_missing(Checkpoint(str(tmp_path), tmp_path).files()) == [f"the file {name} is damaged"]


def test_where_the_first_run_began_matters_until_the_first_commit(tmp_path: Path) -> None:
    spark_checkpoint(tmp_path, [{"orders": {0: 50}}], committed=0)
    (tmp_path / "sources/0/0").write_bytes(b"")
    files = Checkpoint(str(tmp_path), tmp_path).files
    assert pieces_missing(files()) == ["the file sources/0/0 is empty"]
    spark_checkpoint(tmp_path, [{"orders": {0: 50}}])
    assert pieces_missing(files()) == []


@pytest.mark.parametrize("content", [b"", b'v1\n{"'])
def test_a_file_with_a_flaw_of_the_last_batch_alone_can_be_deleted(tmp_path: Path, content: bytes) -> None:
    spark_checkpoint(tmp_path, [{"orders": {0: 50}}, {"orders": {0: 60}}])
    files = Checkpoint(str(tmp_path), tmp_path).files
    for folder in ("commits", "offsets"):
        (tmp_path / folder / "1").write_bytes(content)
        with pytest.raises(EtlError) as refused:
            guard(record(), record(), files(), str(tmp_path))
        assert f"deleting {folder}/1 and {folder}/.1.crc is safe: no batch follows" in refused.value.hints[1]
        (tmp_path / folder / "1").unlink()
        guard(record(), record(), files(), str(tmp_path))
    (tmp_path / "commits/0").write_bytes(b"")
    (tmp_path / "offsets/0").write_bytes(b"")
    with pytest.raises(EtlError) as refused:
        guard(record(), record(), files(), str(tmp_path))
    assert not any("deleting" in hint for hint in refused.value.hints)


def test_files_of_batches_long_past_may_be_empty(tmp_path: Path) -> None:
    spark_checkpoint(tmp_path, [{"orders": {0: 50}}] * 4)
    (tmp_path / "commits/2").write_bytes(b"")
    (tmp_path / "offsets/1").write_bytes(b"")
    assert pieces_missing(Checkpoint(str(tmp_path), tmp_path).files()) == []


def test_a_checkpoint_that_is_whole_or_new_lacks_nothing(tmp_path: Path) -> None:
    spark_checkpoint(tmp_path, [{"orders": {0: 50}}, {"orders": {0: 60}}], committed=1)
    assert pieces_missing(Checkpoint(str(tmp_path), tmp_path).files()) == []
    assert pieces_missing(Files()) == []


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"source": {"topics": ["clicks"]}}, "source: was topics orders; is now topics clicks"),
        ({"source": {"pattern": "orders.*"}}, "source: was topics orders; is now topics that match orders.*"),
        ({"sink": {"type": "parquet", "path": "/lake"}}, "sink: was none; is now parquet /lake"),
        ({"name": "other"}, "it belongs to job orders-to-lake"),
        ({"transform": WINDOWED}, "transform.watermark: was not set; is now ts, 10 minutes"),
    ],
)
def test_a_job_that_has_become_another_one_is_refused(changed: dict[str, object], says: str) -> None:
    files = Files("{}", None, {0: ""}, {0: ""})
    with pytest.raises(EtlError) as refused:
        guard(record(), record(**changed), files, "/state/x")
    assert refused.value.exit_code == EtlExit.CHECKPOINT
    assert says in refused.value.hints


def test_the_sql_of_a_stateful_job_must_stay_but_for_its_spaces() -> None:
    same = {**WINDOWED, "sql": WINDOWED["sql"].replace(" FROM", "\n  FROM")}  # type: ignore[attr-defined]
    other = {**WINDOWED, "sql": WINDOWED["sql"].replace("5 minutes", "1 hour")}  # type: ignore[attr-defined]
    assert differences(record(transform=WINDOWED), record(transform=same)) == []
    (found,) = differences(record(transform=WINDOWED), record(transform=other))
    assert "window(ts, '5 minutes')" in found and "window(ts, '1 hour')" in found


def test_what_a_stateless_job_selects_and_how_much_it_reads_at_once_may_change() -> None:
    now = record(transform={"sql": "SELECT id FROM source"}, source={"topics": ["orders"], "rows_per_batch": 5})
    assert differences(record(), now) == []


def test_a_topic_that_was_created_again_is_told_by_its_id() -> None:
    (found,) = differences(record(), replace(record(), topics={"orders": "bb"}))
    assert '"orders" was deleted and recreated' in found


def test_another_spark_is_told_and_an_unknown_one_is_not() -> None:
    assert differences(record(), replace(record(), spark="4.1")) == ["Spark: was 4.0; is now 4.1"]
    assert differences(record(), replace(record(), spark="")) == []


def test_a_checkpoint_without_a_record_is_not_ours() -> None:
    with pytest.raises(EtlError, match=r"has no job\.json"):
        guard(None, record(), Files("{}", None, {0: ""}, {0: ""}), "/state/x")
    guard(None, record(), Files(), "/state/x")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jdbc:postgresql://db/shop?user=u&password=hush", "jdbc:postgresql://db/shop"),
        ("jdbc:mysql://root:hu@sh@db:3306/shop", "jdbc:mysql://db:3306/shop"),
        ("jdbc:mysql://db:3306/shop?user=a@b", "jdbc:mysql://db:3306/shop"),
        ("jdbc:sqlserver://db;user=a@b;password=hush", "jdbc:sqlserver://db"),
        ("jdbc:oracle:thin:scott/hush@//db:1521/shop", "jdbc:oracle:thin:@//db:1521/shop"),
        ("jdbc:oracle:thin:@//db:1521/shop", "jdbc:oracle:thin:@//db:1521/shop"),
    ],
)
def test_the_login_in_a_jdbc_address_is_not_written_down(url: str, shown: str) -> None:
    found = facts(job(sink={"type": "jdbc", "jdbc": {"url": url, "table": "t"}}))
    assert found["sink"] == f"jdbc table t in {shown}"


def test_the_login_in_the_address_of_a_catalog_is_not_written_down() -> None:
    catalog = {"type": "rest", "url": "https://u:hush@catalog:8181/api"}
    found = facts(job(sink={"type": "iceberg", "iceberg": {"table": "a.b", "catalog": catalog}}))
    assert found["sink"] == "iceberg table a.b in https://catalog:8181/api"


def test_the_place_in_an_object_store_is_no_login() -> None:
    sink = {"type": "parquet", "path": "abfss://lake@store.dfs.core.windows.net/a"}
    assert facts(job(sink=sink))["sink"] == "parquet abfss://lake@store.dfs.core.windows.net/a"


def test_the_record_is_read_as_it_was_written_and_damage_is_told(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path / "x"), tmp_path)
    assert checkpoint.record() is None
    checkpoint.write_record(record())
    assert checkpoint.record() == record()
    (tmp_path / "x/job.json").write_text("{")
    with pytest.raises(EtlError, match="is damaged"):
        checkpoint.record()


def test_a_record_survives_a_power_failure_and_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bytes]] = []

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path.name, path.read_bytes() if path.is_file() else b""))

    monkeypatch.setattr("os.fsync", fsync)
    checkpoint, path = Checkpoint(str(tmp_path / "x"), tmp_path), tmp_path / "x" / "job.json"
    checkpoint.write_record(record())
    assert synced == [(".job.json.new", path.read_bytes()), ("x", b"")]
    checkpoint.write_record(record())
    assert len(synced) == 2
    checkpoint.write_record(replace(record(), spark="4.1"))
    assert checkpoint.record() == replace(record(), spark="4.1") and len(synced) == 4


def test_a_record_that_cannot_be_written_is_told_with_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(EtlError, match=r"x: File exists") as refused:
        Checkpoint(str(tmp_path / "x"), tmp_path).write_record(record())
    assert refused.value.exit_code == EtlExit.ENVIRONMENT
    assert "KAFKAD_ETL_STATE" in refused.value.hints[0]


def test_a_checkpoint_is_put_aside_and_not_deleted(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path / "x"), tmp_path)
    assert checkpoint.put_aside("old") is None
    checkpoint.write_record(record())
    assert checkpoint.put_aside("old") == tmp_path / "x.reset-old"
    assert (tmp_path / "x.reset-old/job.json").exists() and not (tmp_path / "x").exists()


def test_where_a_checkpoint_is() -> None:
    assert directory_of(job(), {"KAFKAD_ETL_STATE": "/state"}) == "/state/orders-to-lake"
    assert directory_of(job(run={"checkpoint": "file:///c/x"}), {}) == "/c/x"
    assert directory_of(job(run={"checkpoint": "hdfs://nn/c"}), {}) == "hdfs://nn/c"
    assert Path(directory_of(job(run={"checkpoint": "c"}), {})) == Path.cwd() / "c"
    assert directory_of(job(run={"checkpoint": "hdfs:/c"}), {}) == "hdfs:/c"


def test_a_remote_checkpoint_stands_where_runs_from_here_left_it(tmp_path: Path) -> None:
    checkpoint = Checkpoint("hdfs://nn/c", tmp_path / "x")
    assert (checkpoint.standing(), checkpoint.files().is_begun) == (Standing(), False)
    seen = Standing(batch=4, reached={"orders": {0: 7}})
    checkpoint.write_record(replace(record(), remote="hdfs://nn/c"))
    assert checkpoint.last_commit() is None
    checkpoint.write_record(replace(record(), remote="hdfs://nn/c", seen=seen))
    found = beside(tmp_path / "x" / "job.json")
    assert (found.path, found.standing()) == ("hdfs://nn/c", seen)
    assert found.last_commit() is not None
