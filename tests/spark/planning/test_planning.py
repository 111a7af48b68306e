from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kafkad.names import TopicPartition
from kafkad_etl.checkpoint.checkpoints import Checkpoint, checkpoint_of, record_of
from kafkad_etl.cluster import topics
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.messages import Batch
from kafkad_etl.planning import writing
from kafkad_etl.planning.beginning import begin
from kafkad_etl.planning.plan import plan
from kafkad_etl.planning.planned import PlannedRun, RunOptions
from kafkad_etl.planning.readiness import check
from kafkad_etl.planning.resume import ResumePoint, resume_point
from kafkad_etl.tasks.attending import KeptRecord
from kctl.settings import Settings
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.oracle.kafka import free_port
from tests.spark.checkpoint_files import spark_checkpoint
from tests.spark.jobs import job

RUN = RunOptions()


class Cluster:
    """One kafkad, with a topic of the test's own: 30 records in partition 0, and 10 in partition 1."""

    def __init__(self, kctl: Kctl, bootstrap: str, name: str, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kctl = kctl
        self.bootstrap = bootstrap
        self.topic = name
        self.state = state
        self.settings = Settings()
        self.settings.yes = True
        assert kctl("topics", "create", name, "-p", "2", "-y").code == 0
        self.write(0, 30)
        self.write(1, 10)

    def write(self, partition: int, count: int) -> None:
        lines = self.state.parent / f"{self.topic}.lines"
        lines.write_text("".join(f"{number}\n" for number in range(count)))
        assert self.kctl("produce", self.topic, "--partition", partition, "--file", lines).code == 0

    def delete(self, topic: str) -> None:
        assert self.kctl("topics", "delete", topic, "-y", "--undo-dir", self.state.parent).code == 0

    def plan(self, asked: RunOptions = RUN, **blocks: Any) -> PlannedRun:
        blocks = {"source": {"topics": [self.topic]}, "name": "j"} | blocks
        if "topics" not in blocks["source"] and not {"pattern", "partitions", "files"} & blocks["source"].keys():
            blocks["source"] = {"topics": [self.topic], **blocks["source"]}
        with Clusters(self.settings, Path()) as clusters:
            found = plan(
                clusters, job(self.bootstrap, **blocks), asked, environment={"KAFKAD_ETL_STATE": str(self.state)}
            )
            self.said = begin(found, clusters).notes if self.begins else []
        return found

    begins = False

    def run(self, asked: RunOptions = RUN, **blocks: Any) -> PlannedRun:
        """As far as Spark."""
        self.begins = True
        try:
            return self.plan(asked, **blocks)
        finally:
            self.begins = False

    def refused(self, asked: RunOptions = RUN, **blocks: Any) -> EtlError:
        with pytest.raises(EtlError) as refused:
            self.plan(asked, **blocks)
        return refused.value


@pytest.fixture
def cluster(
    on_broker: Kctl,
    broker: KafkadProcess,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Cluster]:
    name = request.node.name.partition("[")[0].removeprefix("test_")[:60] + f"-{time.monotonic_ns()}"
    yield Cluster(on_broker, broker.bootstrap, name, tmp_path, monkeypatch)
    on_broker("topics", "delete", name, "-y", "--undo-dir", tmp_path)


def test_a_record_has_no_secrets_and_those_of_an_earlier_version_do_no_harm(tmp_path: Path) -> None:
    sql = "SELECT id, sha2(concat(id, 'hush'), 256) AS h FROM source"
    database = {"url": "jdbc:mysql://root:hush@db/shop", "table": "t", "driver_jar": "/m.jar"}
    hashed = job(
        sink={"type": "jdbc", "jdbc": database},
        transform={"sql": sql, "watermark": {"column": "_timestamp", "delay": "1m"}},
        run={"mode": "available-now"},
    )
    checkpoint = Checkpoint(str(tmp_path), tmp_path)
    spark_checkpoint(tmp_path, [{"orders": {0: 1}}])
    earlier = record_of(hashed, "c", "2026-11-21T23:00:00Z", {"orders": "aa"})
    earlier.facts["sink"] = "jdbc table t in jdbc:mysql://root:hush@db/shop"
    checkpoint.write_record(earlier)
    asked = RunOptions(secrets=frozenset({"hush"}))
    point = resume_point(checkpoint, hashed, asked, {"orders": "aa"}, 0)
    assert point.record is not None and point.record.checkpoint_id == "c"
    assert "hush" not in str(point.record)


def resumed(checkpoint: Checkpoint, secret: str, text: str) -> ResumePoint:
    """That of a job with this sink and source, in which the environment gave the secret."""
    database = {"url": f"jdbc:postgresql://etl:{secret}@db/shop", "table": "t"}
    sink = {"type": "jdbc", "jdbc": database} if text == "a table" else {"type": "parquet", "path": text}
    blocks: dict[str, Any] = {"source": {"topics": ["kafka-orders"]}, "sink": sink, "run": {"mode": "available-now"}}
    point = resume_point(checkpoint, job(**blocks), RunOptions(secrets=frozenset({secret})), {}, 0)
    assert point.record is not None and secret not in str(point.record.facts)
    checkpoint.write_record(point.record)
    return point


def test_what_the_environment_gives_counts_in_paths_and_is_not_written(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path), tmp_path)
    first = resumed(checkpoint, "/lake/prod", "/lake/prod")
    spark_checkpoint(tmp_path, [{"kafka-orders": {0: 1}}])
    assert resumed(checkpoint, "/lake/prod", "/lake/prod").checkpoint_id == first.checkpoint_id
    with pytest.raises(EtlError) as refused:
        resumed(checkpoint, "/lake/test", "/lake/test")
    assert "sink: was parquet ****; is now another parquet ****, whose **** is not the same" in refused.value.hints


def test_a_checkpoint_keeps_its_id_until_a_query_may_begin_since_rights_are_granted_on_it(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path), tmp_path)
    first = resumed(checkpoint, "hush", "/lake/orders")
    assert first.record is not None and first.record.begun
    checkpoint.write_record(replace(first.record, begun=False))
    another = resume_point(checkpoint, job(name="another"), RunOptions(), {}, 0)
    assert another.checkpoint_id != first.checkpoint_id
    reset = resume_point(checkpoint, job(), RunOptions(reset_checkpoint=True), {}, 0)
    assert reset.checkpoint_id != first.checkpoint_id
    assert resumed(checkpoint, "hush", "/lake/others").checkpoint_id == first.checkpoint_id
    begun = resumed(checkpoint, "hush", "/lake/orders")
    assert begun.checkpoint_id != first.checkpoint_id, "batches may have been written, and Spark's files removed"


def test_a_record_of_an_earlier_version_is_one_whose_query_may_have_begun(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path), tmp_path)
    first = resumed(checkpoint, "hush", "/lake/orders")
    fields = json.loads((tmp_path / "job.json").read_bytes())
    assert fields.pop("begun")
    (tmp_path / "job.json").write_text(json.dumps(fields))
    assert resumed(checkpoint, "hush", "/lake/orders").checkpoint_id != first.checkpoint_id


def test_a_query_may_begin_once_its_user_has_the_rights(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise EtlError("not authorised", EtlExit.CLUSTER)

    checkpoint = Checkpoint(str(cluster.state / "j"), cluster.state)
    with monkeypatch.context() as patched:
        patched.setattr(writing, "need_delivery", refuses)
        with pytest.raises(EtlError):
            cluster.run()
    refused = checkpoint.record()
    assert refused is not None and not refused.begun
    cluster.run()
    begun = checkpoint.record()
    assert begun is not None and begun.begun and begun.checkpoint_id == refused.checkpoint_id


def test_a_password_counts_nowhere_even_if_it_is_a_part_of_a_name(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path), tmp_path)
    first = resumed(checkpoint, "kafka", "a table")
    spark_checkpoint(tmp_path, [{"kafka-orders": {0: 1}}])
    for secret in ("hush", "order"):
        assert resumed(checkpoint, secret, "a table").checkpoint_id == first.checkpoint_id


def test_a_record_of_an_earlier_version_is_compared_as_it_was_written(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path), tmp_path)
    first = resumed(checkpoint, "/lake/prod", "/lake/prod").record
    assert first is not None
    spark_checkpoint(tmp_path, [{"kafka-orders": {0: 1}}])
    checkpoint.write_record(replace(first, digests={}))
    assert resumed(checkpoint, "/lake/test", "/lake/test").checkpoint_id == first.checkpoint_id
    plain = {"source": "topics kafka-orders", "sink": "parquet /lake/prod"}
    checkpoint.write_record(replace(first, facts=plain, digests={}))
    assert resumed(checkpoint, "/lake/prod", "/lake/prod").checkpoint_id == first.checkpoint_id
    with pytest.raises(EtlError):
        resumed(checkpoint, "/lake/test", "/lake/test")


def starts(planned: PlannedRun) -> dict[int, int]:
    assert planned.plan.reading is not None
    (found,) = planned.plan.reading.start.values()
    return found


def ends(planned: PlannedRun) -> dict[int, int]:
    assert planned.plan.reading is not None
    (found,) = planned.plan.reading.end.values()
    return found


def test_a_plan_has_every_partition_and_what_there_is_to_be_read(cluster: Cluster) -> None:
    planned = cluster.plan()
    assert (starts(planned), ends(planned), planned.rows) == ({0: 0, 1: 0}, {0: 30, 1: 10}, 40)
    reading = planned.plan.reading
    assert reading is not None and (reading.how, reading.what) == ("subscribe", cluster.topic)
    assert reading.client["bootstrap.servers"] == cluster.bootstrap
    assert reading.fail_on_data_loss
    assert planned.plan.checkpoint == str(cluster.state / "j")
    assert len(planned.plan.checkpoint_id) == 32
    assert 1 < planned.record_bytes[cluster.topic] < 200


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", {0: 0, 1: 0}),
        ("latest", {0: 30, 1: 10}),
        ("2020-01-01T00:00:00Z", {0: 0, 1: 0}),
        ("+1h", {0: 30, 1: 10}),
    ],
)
def test_where_reading_begins(cluster: Cluster, start: str, expected: dict[int, int]) -> None:
    assert starts(cluster.plan(source={"start": start})) == expected


def test_offsets_are_taken_as_given_and_other_partitions_begin_at_their_start(cluster: Cluster) -> None:
    planned = cluster.plan(source={"start": {cluster.topic: {0: 12}}})
    assert (starts(planned), planned.rows) == ({0: 12, 1: 0}, 28)


def test_an_end_counts_in_mode_batch_only(cluster: Cluster) -> None:
    source = {"end": {cluster.topic: {0: 20, 1: 5}}}
    assert ends(cluster.plan(source=source, run={"mode": "batch"})) == {0: 20, 1: 5}
    assert ends(cluster.plan(source=source)) == {0: 30, 1: 10}


def test_mode_batch_has_no_checkpoint(cluster: Cluster) -> None:
    planned = cluster.plan(run={"mode": "batch"})
    assert (planned.plan.checkpoint, planned.checkpoint, planned.plan.mode) == ("", None, "batch")
    assert planned.plan.owner == str(cluster.state / "j")
    environment = {"KAFKAD_ETL_STATE": str(cluster.state)}
    assert checkpoint_of(planned.plan.job, environment).lock_path == cluster.state / "j.lock"


def test_a_group_says_where_to_begin(cluster: Cluster) -> None:
    group = f"group-{cluster.topic}"
    refused = cluster.refused(source={"start": "group"}, run={"group": group})
    assert refused.exit_code == EtlExit.CLUSTER
    assert f'group "{group}" has no committed offsets' in refused.what
    cluster.kctl("groups", "reset-offsets", group, "--topic", f"{cluster.topic}:0", "--to", "7", "-y")
    assert starts(cluster.plan(source={"start": "group"}, run={"group": group})) == {0: 7, 1: 0}


def test_an_offset_after_the_end_is_refused_with_what_there_is(cluster: Cluster) -> None:
    refused = cluster.refused(source={"start": {cluster.topic: {0: 31}}})
    assert refused.exit_code == EtlExit.USAGE
    assert (
        f"source.start: {cluster.topic}-0 has offsets 0-29 and ends at 30, so offset 31 does not exist" in refused.what
    )


@pytest.mark.parametrize("start", ["yesterday", "12 o'clock", {"t": {0: "middle"}}])
def test_what_is_no_place_to_begin_is_refused(cluster: Cluster, start: Any) -> None:
    assert cluster.refused(source={"start": start}).exit_code == EtlExit.USAGE


def test_a_missing_topic_is_told_with_the_host_and_what_was_meant(cluster: Cluster) -> None:
    wrong = cluster.topic + "s"
    refused = cluster.refused(source={"topics": [wrong]})
    assert refused.exit_code == EtlExit.CLUSTER
    assert refused.what == f"source.topics.0: topic '{wrong}' does not exist on {cluster.bootstrap}"
    assert cluster.topic in refused.hints[0] and "did you mean" in refused.hints[0]


def test_a_missing_partition_is_told_with_those_there_are(cluster: Cluster) -> None:
    refused = cluster.refused(source={"partitions": {cluster.topic: [0, 5]}})
    assert (refused.exit_code, refused.hints) == (EtlExit.CLUSTER, ("it has partitions 0-1",))


def test_single_partitions_are_assigned(cluster: Cluster) -> None:
    planned = cluster.plan(source={"partitions": {cluster.topic: [1]}})
    assert starts(planned) == {1: 0}
    assert planned.plan.reading is not None and planned.plan.reading.how == "assign"
    assert json.loads(planned.plan.reading.what) == {cluster.topic: [1]}


def test_a_pattern_is_of_whole_names_for_spark_too(cluster: Cluster) -> None:
    pattern = cluster.topic[:-1] + "."
    reading = cluster.plan(source={"pattern": pattern}).plan.reading
    assert reading is not None
    assert (list(reading.start), reading.how, reading.what) == ([cluster.topic], "subscribePattern", f"^(?:{pattern})$")
    refused = cluster.refused(source={"pattern": cluster.topic[:-3]})
    assert refused.exit_code == EtlExit.CLUSTER and "no topic on" in refused.what
    assert cluster.refused(source={"pattern": "orders-("}).exit_code == EtlExit.USAGE


def test_nobody_there_is_told_within_five_seconds(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    with pytest.raises(EtlError) as refused, Clusters(Settings(), tmp_path) as clusters:
        plan(clusters, job(address), RUN, environment={"KAFKAD_ETL_STATE": str(tmp_path)})
    assert time.monotonic() - began < 5
    assert refused.value.exit_code == EtlExit.CLUSTER
    assert refused.value.what == f"no broker is responding at {address}"
    assert "connection refused" in refused.value.hints[0]


def test_whoever_listens_and_says_nothing_is_given_up_after_five_seconds(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        began = time.monotonic()
        with (
            pytest.raises(EtlError, match=f"no broker is responding at {address}"),
            Clusters(Settings(), tmp_path) as clusters,
        ):
            plan(clusters, job(address), RUN, environment={"KAFKAD_ETL_STATE": str(tmp_path)})
        assert time.monotonic() - began < 6


# --- the checkpoint


def test_a_second_run_goes_on_where_the_checkpoint_stands(cluster: Cluster) -> None:
    first = cluster.run()
    spark_checkpoint(cluster.state / "j", [{cluster.topic: {0: 20, 1: 10}}])
    second = cluster.run(source={"start": "latest"})
    assert (starts(second), second.rows, second.is_new) == ({0: 20, 1: 10}, 10, False)
    assert second.plan.checkpoint_id == first.plan.checkpoint_id
    assert second.standing.batch == 0


def test_a_partition_that_is_new_is_read_from_its_start(cluster: Cluster) -> None:
    cluster.run()
    spark_checkpoint(cluster.state / "j", [{cluster.topic: {0: 30, 1: 10}}])
    cluster.kctl("topics", "add-partitions", cluster.topic, "--partitions", "3", "-y")
    cluster.write(2, 4)
    planned = cluster.plan()
    assert (starts(planned), planned.rows) == ({0: 30, 1: 10, 2: 0}, 4)


def test_a_plan_changes_nothing(cluster: Cluster) -> None:
    cluster.plan(RunOptions(reset_checkpoint=True))
    assert list(cluster.state.iterdir()) == []


def test_records_deleted_before_they_were_read_are_told_exactly(cluster: Cluster) -> None:
    cluster.run()
    spark_checkpoint(cluster.state / "j", [{cluster.topic: {0: 10, 1: 10}}])
    cluster.kctl("topics", "truncate", cluster.topic, "--before", "25", "--partitions", "0", "-y")
    refused = cluster.refused()
    assert refused.exit_code == EtlExit.DATA_LOSS
    assert refused.what == f"{cluster.topic}-0: 15 records (10-24) deleted before they were read"
    for accepted in (
        cluster.plan(RunOptions(accept_data_loss=True)),
        cluster.plan(source={"on_data_loss": "continue"}),
    ):
        assert (starts(accepted), accepted.rows) == ({0: 25, 1: 10}, 5)
        assert [gap.records for gap in accepted.lost] == [15]
        assert "continuing without them" in accepted.warnings[0]
        assert accepted.plan.reading is not None and not accepted.plan.reading.fail_on_data_loss


def test_every_partition_with_a_gap_is_told(cluster: Cluster) -> None:
    cluster.kctl("topics", "truncate", cluster.topic, "--before", "5", "-y")
    refused = cluster.refused(source={"start": {cluster.topic: {0: 2, 1: 4}}})
    assert refused.what == "4 records were deleted before they were read"
    assert [hint.split(":")[1] for hint in refused.hints[:2]] == [
        " 3 records (2-4) deleted before they were read",
        " 1 record (4) deleted before they were read",
    ]


def test_a_topic_that_was_created_again_stops_the_job(cluster: Cluster) -> None:
    cluster.run()
    spark_checkpoint(cluster.state / "j", [{cluster.topic: {0: 20, 1: 10}}])
    cluster.delete(cluster.topic)
    cluster.kctl("topics", "create", cluster.topic, "-p", "2", "-y")
    refused = cluster.refused()
    assert refused.exit_code == EtlExit.CHECKPOINT
    assert f'topic "{cluster.topic}" was deleted and recreated' in refused.hints[0]


def test_a_topic_whose_id_no_run_has_recorded_may_be_another_one(cluster: Cluster) -> None:
    first = cluster.run()
    assert first.checkpoint and first.record and first.warnings == ()
    spark_checkpoint(cluster.state / "j", [{cluster.topic: {0: 20, 1: 10}}])
    first.checkpoint.write_record(replace(first.record, topics={}))
    (warning,) = cluster.run().warnings
    assert warning.startswith(
        f"topic {cluster.topic}: no id was on record until now; if one was deleted and made again"
    )
    assert cluster.run().warnings == ()


def by_pattern(cluster: Cluster) -> dict[str, Any]:
    """A job that reads by a pattern, and has read all of its topic and of another one, which is not there."""
    source = {"pattern": f"{cluster.topic}.*"}
    cluster.run(source=source)
    spark_checkpoint(cluster.state / "j", [{cluster.topic: {0: 30, 1: 10}, f"{cluster.topic}-b": {0: 50}}])
    return source


def test_a_topic_of_a_pattern_that_was_deleted_is_told_though_nothing_is_new(cluster: Cluster) -> None:
    source = by_pattern(cluster)
    refused = cluster.refused(source=source)
    assert refused.exit_code == EtlExit.DATA_LOSS
    assert refused.what == f'topic "{cluster.topic}-b" was deleted; what had not been read of it is lost'
    for accepted in (
        cluster.plan(RunOptions(accept_data_loss=True), source=source),
        cluster.plan(source={**source, "on_data_loss": "continue"}),
    ):
        assert accepted.plan.reading is not None and accepted.plan.reading.deleted == [f"{cluster.topic}-b"]
        assert accepted.warnings == (f"{refused.what}; continuing without it",)
        assert not accepted.has_nothing_new, "the checkpoint has it until there is a batch without it"


@pytest.mark.parametrize(
    ("absent", "told"), [("hidden", "deleted, or not authorised"), (None, "the brokers do not agree whether it is")]
)
def test_a_topic_that_a_pattern_does_not_find_is_no_loss_to_accept_unless_it_was_deleted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, absent: str | None, told: str
) -> None:
    source = by_pattern(cluster)
    monkeypatch.setattr(topics, "absent", lambda _, ids: dict.fromkeys(ids, absent) if absent else {})
    for refused in (
        cluster.refused(source=source),
        cluster.refused(RunOptions(accept_data_loss=True), source=source),
        cluster.refused(source={**source, "on_data_loss": "continue"}),
    ):
        assert refused.exit_code == EtlExit.CLUSTER
        assert told in refused.what and f'"{cluster.topic}-b"' in refused.what


def test_a_topic_that_ends_before_the_checkpoint_stops_the_job(cluster: Cluster) -> None:
    cluster.run()
    spark_checkpoint(cluster.state / "j", [{cluster.topic: {0: 50, 1: 10}}])
    refused = cluster.refused()
    assert refused.exit_code == EtlExit.DATA_LOSS
    assert "the checkpoint is at 50, but the partition now ends at 30" in refused.what


def test_a_changed_job_is_refused_and_begins_anew_when_told_to(cluster: Cluster) -> None:
    first = cluster.run()
    spark_checkpoint(cluster.state / "j", [{cluster.topic: {0: 20, 1: 10}}])
    changed = {"sink": {"type": "parquet", "path": "/lake"}}
    assert cluster.refused(**changed).exit_code == EtlExit.CHECKPOINT
    again = cluster.run(RunOptions(reset_checkpoint=True), **changed)
    assert starts(again) == {0: 0, 1: 0}
    assert again.plan.checkpoint_id != first.plan.checkpoint_id
    (aside,) = cluster.state.glob("j.reset-*")
    assert (aside / "offsets/0").exists() and str(aside) in cluster.said[0]
    assert not (cluster.state / "j/offsets").exists()


def test_a_remote_checkpoint_is_not_looked_at_and_that_is_said(cluster: Cluster) -> None:
    planned = cluster.run(run={"checkpoint": "s3a://bucket/c"})
    assert planned.plan.checkpoint == "s3a://bucket/c"
    assert "cannot be read from here" in planned.warnings[0]
    assert planned.plan.committed is None
    refused = cluster.refused(run={"checkpoint": "s3a://bucket/c"}, sink={"type": "parquet", "path": "/lake"})
    assert refused.exit_code == EtlExit.CHECKPOINT


def test_in_mode_batch_staging_is_not_the_remote_checkpoints_since_the_lock_is_here(cluster: Cluster) -> None:
    remote = {"checkpoint": "s3a://bucket/c"}
    assert cluster.plan(run=remote).plan.owner == "s3a://bucket/c"
    assert cluster.plan(run={**remote, "mode": "batch"}).plan.owner == str(cluster.state / "j")


def test_a_remote_checkpoint_stands_where_the_last_run_from_here_left_it(cluster: Cluster) -> None:
    first = cluster.run(run={"checkpoint": "s3a://bucket/c"})
    assert first.checkpoint and first.record
    kept = KeptRecord(first.checkpoint, first.record)
    kept.remember(Batch(batch=7, end={cluster.topic: {0: 20, 1: 10}}, rows_read=30, rows_written=30, seconds=1.0))
    kept.learn({"new": "id"})
    again = cluster.plan(run={"checkpoint": "s3a://bucket/c"})
    assert starts(again) == {0: 20, 1: 10}
    assert (again.plan.committed, again.plan.checkpoint_id) == (7, first.plan.checkpoint_id)
    assert again.record is not None and again.record.topics["new"] == "id"
    assert cluster.plan().plan.committed is None


# --- the sink


def topic_sink(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "topic", "topic": {"topic": name, **more}}


def test_a_sink_topic_has_to_exist_or_is_created_by_a_run_only(cluster: Cluster) -> None:
    out = f"{cluster.topic}-out"
    refused = cluster.refused(sink=topic_sink(out))
    assert refused.exit_code == EtlExit.CLUSTER
    assert refused.what == f"sink.topic: topic '{out}' does not exist on {cluster.bootstrap}"
    assert "sink.topic.create" in refused.hints[-1]
    sink = topic_sink(out, create={"partitions": 3, "config": {"retention.ms": 1000}})
    assert [creation.topic for creation in cluster.plan(sink=sink).creations] == [out]
    assert cluster.kctl("topics", "describe", out).code != 0
    cluster.run(sink=sink)
    assert cluster.said == [f"created topic {out} with 3 partitions"]
    assert cluster.plan(sink=sink).creations == ()
    cluster.delete(out)


def test_a_run_that_writes_exactly_once_begins_where_there_are_no_acls(cluster: Cluster) -> None:
    planned = cluster.run(sink=topic_sink(cluster.topic, delivery="exactly-once"))
    record = Checkpoint(str(cluster.state / "j"), cluster.state).record()
    assert record is not None and record.checkpoint_id == planned.plan.checkpoint_id


def test_rows_that_keep_their_partition_need_a_topic_with_as_many(cluster: Cluster) -> None:
    out = f"{cluster.topic}-narrow"
    assert cluster.kctl("topics", "create", out, "-p", "1", "-y").code == 0
    select = "SELECT value, _partition FROM source"
    refused = cluster.refused(sink=topic_sink(out, partition="_partition"), transform={"sql": select})
    assert refused.exit_code == EtlExit.CLUSTER
    assert refused.what == (
        f'sink.topic.partition: rows keep their partition: "{cluster.topic}" has partitions 0-1, '
        f'but topic "{out}" on {cluster.bootstrap} has partition 0 only'
    )
    assert refused.hints[0] == f"kctl -b {cluster.bootstrap} topics add-partitions {out} -p 2"
    created = topic_sink(f"{out}-new", partition="_partition", create={"partitions": 1})
    assert cluster.refused(sink=created).hints[0] == "sink.topic.create.partitions: 2"
    with pytest.raises(EtlError, match="has partition 0 only"), Clusters(cluster.settings, Path()) as clusters:
        check(
            clusters,
            job(cluster.bootstrap, source={"topics": [cluster.topic]}, sink=topic_sink(out, partition="_partition")),
        )
    chosen = cluster.plan(sink=topic_sink(out, partition="p"), transform={"sql": "SELECT value, 0 AS p FROM source"})
    assert chosen.plan.sink_partitions == 1, "the driver sees which partitions the rows name"
    cluster.delete(out)


def test_a_run_that_would_find_nothing_new_is_known(cluster: Cluster) -> None:
    assert not cluster.run().has_nothing_new, "it has never run"
    ends = {cluster.topic: {0: 30, 1: 10}}
    spark_checkpoint(cluster.state / "j", [ends, ends])
    assert cluster.plan().has_nothing_new
    assert not cluster.plan(run={"mode": "continuous"}).has_nothing_new
    assert not cluster.plan(run={"mode": "batch"}).has_nothing_new
    assert not cluster.plan(RunOptions(reset_checkpoint=True)).has_nothing_new
    (cluster.state / "j/sink/merging").mkdir(parents=True)
    (cluster.state / "j/sink/merging/0.json").touch()
    assert not cluster.plan().has_nothing_new, "a merge of files is not finished"
    (cluster.state / "j/sink/merging/0.json").unlink()
    (cluster.state / "j/commits/1").unlink()
    assert not cluster.plan().has_nothing_new, "a batch comes again"
    (cluster.state / "j/commits/1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    cluster.write(1, 1)
    assert not cluster.plan().has_nothing_new


def test_a_dead_letter_topic_has_to_exist(cluster: Cluster) -> None:
    letters = {"format": "json", "schema": "id BIGINT", "bad_rows": {"action": "dead_letter", "topic": "no-such"}}
    refused = cluster.refused(value=letters)
    assert refused.what == f"value.bad_rows.topic: topic 'no-such' does not exist on {cluster.bootstrap}"
    letters["bad_rows"] = {"action": "dead_letter", "topic": cluster.topic}
    assert cluster.plan(value=letters).plan.dead_letter_client["bootstrap.servers"] == cluster.bootstrap


def test_dead_letters_may_be_as_large_as_their_topic_takes(cluster: Cluster) -> None:
    def limit(**kafka: Any) -> str | None:
        letters = {
            "format": "json",
            "schema": "id BIGINT",
            "bad_rows": {"action": "dead_letter", "topic": cluster.topic},
        }
        planned = cluster.plan(value=letters, kafka={"bootstrap": [cluster.bootstrap], **kafka})
        return planned.plan.dead_letter_client.get("max.request.size")

    assert limit() == "1048588"
    cluster.kctl("configs", "set", f"topic/{cluster.topic}", "max.message.bytes=5000000", "-y")
    assert limit() == "5000000"
    assert limit(options={"max.request.size": 7}) == "7"
    cluster.kctl("configs", "set", f"topic/{cluster.topic}", "max.message.bytes=1000", "-y")
    assert limit() == "1048576", "what Kafka's client takes: compressed, such a record may fit"


def test_the_sink_client_has_its_own_cluster_and_options(cluster: Cluster) -> None:
    sink = topic_sink(cluster.topic, options={"linger.ms": 20})
    client = cluster.plan(sink=sink, kafka={"bootstrap": [cluster.bootstrap], "options": {"a": True}}).plan.sink_client
    assert (client["linger.ms"], client["acks"], client["a"]) == ("20", "all", "true")


def test_a_preview_reads_the_last_rows_or_the_first(cluster: Cluster) -> None:
    last = cluster.plan(RunOptions(task="preview", limit_rows=5))
    assert (starts(last), ends(last)) == ({0: 25, 1: 5}, {0: 30, 1: 10})
    first = cluster.plan(RunOptions(task="preview", limit_rows=5, preview_from="earliest"))
    assert (starts(first), ends(first)) == ({0: 0, 1: 0}, {0: 5, 1: 5})
    assert (last.plan.mode, last.plan.checkpoint) == ("batch", "")


def test_files_as_a_source_need_no_cluster(tmp_path: Path) -> None:
    files = {"files": {"format": "parquet", "path": str(tmp_path)}}
    with Clusters(Settings(), tmp_path) as clusters:
        found = plan(clusters, job("127.0.0.1:1", source=files), RUN, environment={"KAFKAD_ETL_STATE": str(tmp_path)})
    assert (found.plan.reading, found.reach) == (None, ())
    assert TopicPartition("x", 0) not in found.reach
