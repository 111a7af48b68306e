from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.names import TopicPartition
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.cluster.losses import lost
from kafkad_etl.cluster.starts import Extent
from kafkad_etl.cluster.timestamps import BeyondSpark, of_records
from kafkad_etl.errors import EtlExit
from kafkad_etl.messages import Failed
from kafkad_etl.model.loading import JobFile, parse
from kafkad_etl.planning.plan import plan
from kafkad_etl.planning.planned import RunOptions
from kafkad_etl.reporting.state import State, begin
from kafkad_etl.tasks.diagnosis import explain, place
from kctl.errors import Exit, KctlError
from kctl.settings import Settings
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.kctl.groups.reading import make_topic
from tests.spark.jobs import job

SPARK = Failed(kind="spark", text="Spark says something else", hints=["a hint"])


class Run:
    def __init__(self, broker: KafkadProcess, topic: str, state: Path) -> None:
        self.clusters = Clusters(Settings(), Path())
        self.topic = topic
        own = job(broker.bootstrap, source={"topics": [topic]})
        self.planned = plan(self.clusters, own, RunOptions(), environment={"KAFKAD_ETL_STATE": str(state)})

    def at(self, offset: int) -> State:
        return begin(0, {self.topic: {0: offset}}, {self.topic: {0: 30}})

    def fails(self, failed: Failed = SPARK, offset: int = 10) -> KctlError:
        return explain(failed, self.planned, self.clusters, self.at(offset))


@pytest.fixture
def run(broker: KafkadProcess, on_broker: Kctl, tmp_path: Path) -> Iterator[Run]:
    name = f"diagnosed-{time.monotonic_ns()}"
    make_topic(broker.port, name, 30)
    found = Run(broker, name, tmp_path)
    with found.clusters:
        yield found


def test_without_a_fault_of_the_cluster_it_is_what_the_driver_says(run: Run) -> None:
    error = run.fails()
    assert (error.what, error.exit_code, error.hints) == (SPARK.text, EtlExit.FAILED, ("a hint",))


def test_a_topic_deleted_in_the_middle(run: Run, on_broker: Kctl, tmp_path: Path) -> None:
    on_broker("topics", "delete", run.topic, "-y", "--undo-dir", tmp_path)
    error = run.fails()
    assert (error.what, error.exit_code) == (
        f"topic {run.topic} was deleted while the job was running",
        EtlExit.CLUSTER,
    )


def test_a_topic_created_again_in_the_middle(run: Run, on_broker: Kctl, tmp_path: Path) -> None:
    on_broker("topics", "delete", run.topic, "-y", "--undo-dir", tmp_path)
    on_broker("topics", "create", run.topic, "-y")
    error = run.fails()
    assert error.exit_code == EtlExit.CHECKPOINT and "was deleted and recreated" in error.what


def test_records_deleted_in_the_middle(run: Run, on_broker: Kctl) -> None:
    on_broker("topics", "truncate", run.topic, "--before", "25", "-y")
    error = run.fails(Failed(kind="data-loss", text="Some data may have been lost"))
    assert error.exit_code == EtlExit.DATA_LOSS
    assert error.what == f"{run.topic}-0: 15 records (10-24) deleted before they were read"


UNREADABLE = Failed(kind="timestamp", text="a record's timestamp is beyond what Spark can read")


def test_a_record_whose_timestamp_spark_cannot_read_is_named_with_the_way_past_it(run: Run, on_broker: Kctl) -> None:
    assert on_broker("produce", run.topic, "--value", "x", "--timestamp", str(2**63 - 1)).code == 0
    assert on_broker("produce", run.topic, "--value", "y").code == 0
    error = run.fails(UNREADABLE)
    assert error.exit_code == EtlExit.DATA
    assert error.what == (
        f"{run.topic}-0 at offset 30: the record's timestamp, 9223372036854775807, is beyond 9223372036854775, "
        "the last that Spark can read"
    )
    only = f"partitions: {{{run.topic}: [0]}}"
    span = f"start: {{{run.topic}: {{0: 10}}}}, end: {{{run.topic}: {{0: 30}}}}"
    assert error.hints == (
        f"first, what is before it: kctl etl run JOB --mode batch --set 'source={{{only}, {span}}}'",
        f"deleting it: kctl topics truncate {run.topic} --partitions 0 --before 31",
        "after that, --accept-data-loss continues with what is left, for one run",
    )
    assert len(run.fails(UNREADABLE, offset=30).hints) == 2, "nothing is before it"


def test_a_run_without_progress_can_read_around_such_a_record() -> None:
    error = of_records([BeyondSpark(TopicPartition("t", 0), 10, 30, 2**63 - 1)], keeps_progress=False)
    assert error.hints == ("source.start and source.end read around it: to offset 30, and from 31",)


def test_what_no_broker_finds_by_its_timestamp_is_what_the_driver_says(run: Run) -> None:
    error = run.fails(UNREADABLE)
    assert (error.what, error.exit_code) == (UNREADABLE.text, EtlExit.DATA)


def test_a_broker_that_has_gone(run: Run) -> None:
    class Gone(Clusters):
        def session(self, kafka: object) -> object:  # type: ignore[override]
            raise KctlError("no broker answered", exit_code=Exit.UNREACHABLE)

    def explained(failed: Failed) -> tuple[str, object]:
        error = explain(failed, run.planned, Gone(Settings(), Path()), run.at(0))
        return error.what, error.exit_code

    assert explained(SPARK) == ("no broker answered", EtlExit.CLUSTER)
    login = Failed(kind="topic", text="Authentication failed due to invalid credentials")
    assert explained(login) == (login.text, EtlExit.CLUSTER)
    deleted = Failed(kind="data-loss", text="records were deleted before they were read")
    assert explained(deleted) == (deleted.text, EtlExit.DATA_LOSS)


@pytest.mark.parametrize(
    ("kind", "code"),
    [("sql", 2), ("schema", 5), ("bad-rows", 5), ("check", 5), ("checkpoint", 7), ("environment", 4)],
)
def test_other_failures_are_not_looked_for_in_the_cluster(run: Run, kind: str, code: int) -> None:
    error = explain(Failed(kind=kind, text="x"), run.planned, run.clusters, run.at(0), "orders.yaml:3 transform.sql")  # type: ignore[arg-type]
    assert (error.what, int(error.exit_code)) == ("orders.yaml:3 transform.sql: x", code)


def test_a_partition_that_ends_before_what_was_read_was_cut_off() -> None:
    where = TopicPartition("t", 0)
    error = lost({where: 200}, {where: Extent(0, 10)})
    assert error is not None and "the checkpoint is at 200, but the partition now ends at 10" in error.what
    assert lost({where: 5}, {where: Extent(0, 10)}) is None


JOB = """version: 1
name: try
source: {topics: [orders]}
sink: {type: none}
transform:
  steps:
    - name: clean
      sql: |
        SELECT id
        FROM sourc
    - {name: sums, file: sums.sql}
checks: [{sql: SELECT 1 FROM nowhere, expect: 1}]
"""


def test_where_sql_is_wrong_is_named_in_the_file_that_has_it(tmp_path: Path) -> None:
    loaded = parse(JOB, JobFile(tmp_path / "job.yaml"), {})

    def at(step: str, line: int, column: int) -> str:
        failed = Failed(kind="sql", text="x", step=step, line=line, column=column)
        return place(failed, loaded).removeprefix(f"{tmp_path}/")

    assert at("clean", 2, 6) == "job.yaml:10:14 transform.steps.0.sql"
    assert at("sums", 3, 7) == "sums.sql:3:7"
    assert at("checks[0]", 1, 15) == "job.yaml:12:30 checks.0.sql"
    assert place(Failed(kind="spark", text="x"), loaded) == ""


def test_a_lookup_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    job = JOB.replace("  steps:", "  lookups:\n    users: {format: parquet, path: 'hdfs:/users'}\n  steps:")
    loaded = parse(job, JobFile(tmp_path / "job.yaml"), {})
    failed = Failed(kind="store", text="x", step="transform.lookups.users.path")
    assert place(failed, loaded) == f"{tmp_path}/job.yaml:7 transform.lookups.users.path"
