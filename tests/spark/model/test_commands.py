from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from kafkad_etl.model.loading import JobFile, load
from kctl.errors import Exit
from tests.kctl.conftest import Kctl
from tests.kctl.test_startup import imported
from tests.spark.model.jobs import SMALL

WRONG = SMALL.replace("topics", "topisc")
SQL = "value: {format: json, schema: a INT}\ntransform:\n  file: a.sql\n"
COSTLY = {"asyncio", "rich", "ssl", "subprocess", "kafkad_etl.planning", "kctl.reach.session", "pyspark"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_validate_tells_of_each_file(kctl: Kctl, here: Path) -> None:
    (here / "good.yaml").write_text(SMALL)
    (here / "bad.yaml").write_text(WRONG)
    ran = kctl("etl", "validate", "--offline", "good.yaml", "bad.yaml", "missing.yaml")
    assert ran.code == 2
    assert [line.split()[:2] for line in ran.out.splitlines()[1:]] == [
        ["good.yaml", "ok"],
        ["bad.yaml", "error"],
        ["missing.yaml", "error"],
    ]
    assert 'bad.yaml:3 source.topisc: unknown key; did you mean "topics"?' in ran.err
    assert "cannot read missing.yaml: No such file or directory" in ran.err


@pytest.mark.timeout(20)
def test_a_named_pipe_is_not_waited_for(kctl: Kctl, here: Path) -> None:
    """A job may be one that a shell opens. A program needs its name, by which Spark knows what it is."""
    for name in ("pipe.yaml", "pipe.py"):
        os.mkfifo(here / name)
    ran = kctl("etl", "validate", "--offline", "pipe.yaml")
    assert ran.code == 2
    assert "pipe.yaml is no regular file (USAGE)" in ran.err
    assert "a pipe can be given as <(COMMAND), or as /dev/stdin" in ran.err
    ran = kctl("etl", "submit", "pipe.py")
    assert (ran.code, ran.err) == (2, "error: pipe.py is no regular file (USAGE)\n")


def test_a_variable_may_be_that_of_one_file_among_several(kctl: Kctl, here: Path) -> None:
    (here / "one.yaml").write_text(SMALL + "vars: {day: 1}\n")
    (here / "two.yaml").write_text(SMALL + SQL)
    (here / "a.sql").write_text("SELECT a, ${n} AS n FROM source\n")
    both = ("etl", "validate", "--offline", "one.yaml", "two.yaml", "--var", "n=1")
    assert kctl(*both, "--var", "day=2").code == 0
    ran = kctl(*both, "--var", "nix=2")
    assert ran.code == 2
    assert '--var nix: none of the files declares a variable "nix"' in ran.err
    assert "--var n:" not in ran.err


def test_validate_for_programs(kctl: Kctl, here: Path) -> None:
    (here / "good.yaml").write_text(SMALL)
    (here / "bad.yaml").write_text(WRONG + "nix: 1\n")
    ran = kctl("etl", "validate", "--offline", "good.yaml", "bad.yaml", "-o", "json")
    good, bad = json.loads(ran.out)["items"]
    assert (good["state"], good["name"], good["delivery"], good["mistakes"]) == ("ok", "orders", "nothing kept", [])
    assert bad["state"] == "error"
    assert [line.partition(": ")[2].split(";")[0] for line in bad["mistakes"]] == ["unknown key", "unknown key"]


def test_validate_refuses_a_sink_that_would_remove_its_source(kctl: Kctl, here: Path) -> None:
    files = "source: {files: {format: json, path: in/sub, schema: a INT}}"
    job = SMALL.replace("source: {topics: [orders]}", files)
    job = job.replace("{type: none}", "{type: json, path: in/, mode: overwrite}\nrun: {mode: batch}")
    (here / "job.yaml").write_text(job)
    ran = kctl("etl", "validate", "--offline", "job.yaml")
    assert ran.code == 2
    assert "job.yaml:4 sink.path: in/ is above source.files.path, in/sub" in ran.err


def test_a_sink_that_would_remove_the_job_is_refused(kctl: Kctl, here: Path) -> None:
    sink = "{type: json, path: ., mode: overwrite}\nrun: {mode: batch, checkpoint: /elsewhere}"
    (here / "job.yaml").write_text(SMALL.replace("{type: none}", sink))
    for command in (("validate", "--offline"), ("plan",), ("run",)):
        ran = kctl("etl", *command, "job.yaml")
        assert ran.code == 2 and "job.yaml:4 sink.path: . is above the job file, job.yaml" in ran.err


def test_validate_looks_into_sql_in_its_file(kctl: Kctl, here: Path) -> None:
    (here / "job.yaml").write_text(SMALL + SQL)
    (here / "a.sql").write_text("SELECT a,\n  b\nFROM source\n")
    ran = kctl("etl", "validate", "--offline", "job.yaml")
    assert ran.code == 2
    assert 'a.sql:2:3: there is no column "b"; ' in ran.err
    (here / "a.sql").write_text("SELECT DISTINCT a FROM source\n")
    ran = kctl("etl", "validate", "--offline", "job.yaml")
    assert ran.code == 0
    assert "warning: a.sql:1:17: DISTINCT applies to each batch separately" in ran.err


def test_validate_fills_in_and_sets(kctl: Kctl, here: Path) -> None:
    (here / "job.yaml").write_text(SMALL.replace("[orders]", '["${topic}"]'))
    assert kctl("etl", "validate", "--offline", "job.yaml").code == 2
    assert kctl("etl", "validate", "--offline", "job.yaml", "--var", "topic=a", "--set", "sink.type=console").code == 0
    assert kctl("etl", "validate", "--offline", "job.yaml", "--var", "topic").code == Exit.USAGE


def test_a_validation_costs_few_imports(here: Path) -> None:
    job = here / "job.yaml"
    job.write_text(SMALL + "value: {format: json, schema: 'id BIGINT, tags ARRAY<STRING>'}\n")
    modules = imported("etl", "validate", "--offline", str(job))
    assert not modules & {*COSTLY, "sqlglot"}
    assert len(modules) <= 178, sorted(modules)
    job.write_text(SMALL + "transform: {sql: SELECT 1 FROM source}\n")
    modules = imported("etl", "validate", "--offline", str(job))
    assert not modules & COSTLY
    assert len([name for name in modules if not name.startswith("sqlglot")]) <= 242, sorted(modules)


def test_what_comes_after_init_is_a_command_to_paste(kctl: Kctl, here: Path) -> None:
    ran = kctl("etl", "init", "--example", "windowed-counts", "--tests", "--", "-my jobs.yaml")
    next_ones = [line.partition("; next: kctl ")[2] for line in ran.err.splitlines()]
    assert next_ones == ["etl validate -- '-my jobs.yaml'", "etl test -- '-my jobs.yaml'"]
    verb, job = next_ones[0].split(" -- ")
    assert kctl(*verb.split(), "--offline", "--", *shlex.split(job)).code == 0


def test_init_lists_and_writes_and_never_overwrites(kctl: Kctl, here: Path) -> None:
    assert "windowed-counts  " in kctl("etl", "init").out
    ran = kctl("etl", "init", "--example", "windowed-counts")
    assert ran.code == 0
    assert "windowed-counts.yaml written; next: kctl etl validate windowed-counts.yaml" in ran.err
    assert load(JobFile(here / "windowed-counts.yaml"), {}).job.name == "windowed-counts"
    (here / "windowed-counts.yaml").write_text("mine")
    ran = kctl("etl", "init", "--example", "windowed-counts")
    assert (ran.code, (here / "windowed-counts.yaml").read_text()) == (2, "mine")
    assert "windowed-counts.yaml already exists" in ran.err
    assert kctl("etl", "init", "--example", "windowed-counts", "other.yaml").code == 0
    assert kctl("etl", "init", "--example", "windowed-counts", "-").out == (here / "other.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--example", "windowed-count"], 'there is no example "windowed-count"'),
        (["job.yaml"], "name an example"),
        (["--example", "windowed-counts", "no/where.yaml"], "cannot write no/where.yaml"),
    ],
)
def test_init_that_cannot(kctl: Kctl, here: Path, words: list[str], told: str) -> None:
    ran = kctl("etl", "init", *words)
    assert ran.code == 2
    assert told in ran.err
