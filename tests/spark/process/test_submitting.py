from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.job import Job, Mode, Scalar, Sink, Source, Spark
from kafkad_etl.machine.environment import Environment
from kafkad_etl.machine.java import Java
from kafkad_etl.messages import Plan, Reading
from kafkad_etl.process.submitting import (
    BRIEF,
    COLLECTOR,
    DRIVER,
    NO_OPTIONS,
    command,
    cores,
    is_brief,
    java_options,
    options_of,
    settings,
    variables,
)

ENVIRONMENT = Environment(
    Java(Path("/jdk"), "17", "PATH"), Path("/spark"), "4.0.0", "/venv/bin/python", ("/c/a.jar", "hdfs://n/b.jar")
)


def a_job(conf: dict[str, Scalar] | None = None) -> Job:
    spark = Spark(driver_memory="2g", conf=conf or {})
    return Job(version=1, name="try", source=Source(topics=("x",)), sink=Sink(type="none"), spark=spark)


def confs(words: list[str]) -> dict[str, str]:
    found = [words[at + 1] for at, word in enumerate(words) if word == "--conf"]
    return dict(word.split("=", 1) for word in found)


def test_the_command_line() -> None:
    options = options_of(["--queue", "night", "--verbose"])
    words = command(ENVIRONMENT, a_job(), "local[2]", options, ["/private/socket"])
    head = "/spark/bin/spark-submit --master local[2] --deploy-mode client --name try"
    head += " --driver-memory 2g --executor-memory 1g"
    assert words[:11] == head.split()
    jars = ["--jars", "local:/c/a.jar,hdfs://n/b.jar"]
    assert words[-7:] == ["--queue", "night", "--verbose", *jars, str(DRIVER), "/private/socket"]
    assert confs(words)["spark.sql.shuffle.partitions"] == "2"
    assert confs(words)["spark.databricks.delta.snapshotPartitions"] == "2"
    assert confs(words)["spark.sql.session.timeZone"] == "UTC"


@pytest.mark.parametrize(
    ("conf", "options", "theirs"),
    [
        ({}, ["--jars", "my.jar"], "my.jar"),
        ({}, ["--conf", "spark.jars=my.jar"], "my.jar"),
        ({"spark.jars": "a.jar,b.jar"}, [], "a.jar,b.jar"),
        ({"spark.jars": "a.jar"}, ["--conf=spark.jars=b.jar"], "b.jar"),
        ({"spark.jars": "a.jar"}, ["--jars=c.jar", "--conf", "spark.jars=b.jar"], "c.jar"),
    ],
)
def test_jars_are_added_to_ours_by_whichever_of_its_options_spark_takes_them(
    conf: dict[str, Scalar], options: list[str], theirs: str
) -> None:
    words = command(ENVIRONMENT, a_job(conf), "local[2]", options_of(options), ["/s"])
    last = len(words) - words[::-1].index("--jars")
    assert words[last:] == [f"local:/c/a.jar,hdfs://n/b.jar,{theirs}", str(DRIVER), "/s"]


def test_a_cluster_gets_copies_of_the_jars_and_its_own_number_of_partitions() -> None:
    words = command(ENVIRONMENT, a_job(), "yarn", NO_OPTIONS, ["/private/socket"])
    assert "/c/a.jar,hdfs://n/b.jar" in words
    ours = {"spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions", "spark.driver.host"}
    assert not ours & set(confs(words))


def test_what_the_job_sets_goes_before_what_we_would() -> None:
    found = settings(a_job({"spark.sql.session.timeZone": "Europe/Zurich", "spark.ui.enabled": True}), "local[2]")
    assert (found["spark.sql.session.timeZone"], found["spark.ui.enabled"]) == ("Europe/Zurich", True)
    words = command(ENVIRONMENT, a_job({"spark.ui.enabled": True}), "local[2]", NO_OPTIONS, ["/s"])
    assert confs(words)["spark.ui.enabled"] == "true"


def test_no_secret_is_on_the_command_line() -> None:
    conf: dict[str, Scalar] = {"spark.hadoop.fs.s3a.secret.key": "geheim", "spark.hadoop.fs.s3a.access.key": "anna"}
    words = command(ENVIRONMENT, a_job(conf), "local[2]", NO_OPTIONS, ["/s"], secrets=("geheim", ""))
    assert "geheim" not in " ".join(words)
    assert confs(words)["spark.hadoop.fs.s3a.access.key"] == "anna"
    conf = {"spark.driver.extraJavaOptions": "-Dpassword=geheim"}
    with pytest.raises(EtlError, match=r"spark\.driver\.extraJavaOptions contains a secret"):
        command(ENVIRONMENT, a_job(conf), "local[2]", NO_OPTIONS, ["/s"], secrets=("geheim",))


def test_no_secret_is_in_the_environment_but_what_spark_and_its_libraries_look_for_there() -> None:
    libraries = ("AWS_SECRET_ACCESS_KEY", "AZURE_CLIENT_SECRET", "GOOGLE_APPLICATION_CREDENTIALS", "HOME")
    looked_for = [*libraries, "KUBERNETES_SERVICE_PORT", "SPARK_LOCAL_IP", "KRB5CCNAME", "PYTHONHASHSEED"]
    kept = {**dict.fromkeys(looked_for, "geheimnis"), "PLAIN": "x", "OMP_NUM_THREADS": "1", "EMPTY": ""}
    alike = dict.fromkeys(["SPARKPOST_API_KEY", "LCP_PASSWORD", "GOOGLEPLAY_KEY", "PYTHONANYWHERE_TOKEN"], "z")
    given = {**kept, **alike, "PW": "geheimnis", "SAME": "geheimnis", "PIN": "1"}
    given |= {"KCTL_PASSWORD": "x", "KCTL_TOKEN": "y"}
    secret = frozenset({*libraries, *alike, "PW", "PIN"})
    found = variables(
        ENVIRONMENT, "yarn", Path("/private"), given, secrets=("geheimnis", "1", ""), secret_variables=secret
    )
    assert {name: found[name] for name in given if name in found} == kept
    assert "PW" in variables(ENVIRONMENT, "yarn", Path("/private"), given)


@pytest.mark.parametrize(
    "words",
    [
        ["--master", "yarn"],
        ["--master=yarn"],
        ["--conf", "spark.master=yarn"],
        ["--conf=spark.master=yarn"],
        ["-v", "--conf", "a=b", "--master", "yarn", "--deploy-mode", "client"],
    ],
)
def test_the_master_may_be_among_the_options_of_spark_submit(words: list[str]) -> None:
    assert options_of(words)[:2] == (tuple(words), "yarn")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--deploy-mode", "cluster"], "deploy mode cluster is not supported: progress"),
        (["--conf", "spark.submit.deployMode=cluster"], "deploy mode cluster is not supported"),
        (["other.py"], '"other.py" is not a spark-submit option'),
        (["--class", "Main"], "--class does not apply to jobs"),
        (["--queue"], "--queue needs a value"),
    ],
)
def test_what_would_submit_something_else_is_refused(words: list[str], why: str) -> None:
    with pytest.raises(EtlError, match=why) as raised:
        options_of(words)
    assert raised.value.exit_code == EtlExit.USAGE
    assert raised.value.hints


def test_cores() -> None:
    assert [cores(master) for master in ("local", "local[3]", "local[3,2]", "local[*]")] == [1, 3, 3, os.cpu_count()]


def test_variables() -> None:
    found = variables(ENVIRONMENT, "local[2]", Path("/private"), {"PYTHONPATH": "/mine", "SPARK_SUBMIT_OPTS": "-Da=b"})
    assert found["SPARK_LOCAL_DIRS"] == found["TMPDIR"] == "/private"
    assert found["PYTHONPATH"].endswith("/spark:/mine")
    assert (Path(found["PYTHONPATH"].split(":")[0]) / "kafkad_etl" / "messages.py").is_file()
    assert found["SPARK_SUBMIT_OPTS"] == (
        '-Da=b -Dlog4j2.configurationFile=file:///private/log4j2.properties "-Djava.io.tmpdir=/private"'
    )
    assert "SPARK_LOCAL_IP" not in variables(ENVIRONMENT, "yarn", Path("/private"), {})
    assert sys.executable not in found.values()  # the environment says which Python


@pytest.mark.parametrize(
    ("rows", "mode", "brief"),
    [(200_000, "available-now", True), (200_000, "batch", True), (200_001, "batch", False), (10, "continuous", False)],
)
def test_a_run_is_brief_that_reads_few_rows(rows: int, mode: Mode, brief: bool) -> None:
    start, end = {"t": {0: 5, 1: 0}}, {"t": {0: 5 + rows, 1: 0}}
    reading = Reading(client={}, how="subscribe", what="t", start=start, end=end, fail_on_data_loss=True)
    plan = Plan(task="run", job=a_job(), mode=mode, reading=reading)
    assert is_brief(plan) == brief
    assert not is_brief(replace(plan, reading=None))


@pytest.mark.parametrize(
    ("rows", "mode", "brief"), [(3000, "available-now", True), (3001, "available-now", False), (3001, "batch", True)]
)
def test_a_run_of_many_batches_is_not_brief_however_few_rows_they_have(rows: int, mode: Mode, brief: bool) -> None:
    job = a_job()
    job = replace(job, source=replace(job.source, rows_per_batch=100))
    reading = Reading(
        client={}, how="subscribe", what="t", start={"t": {0: 0}}, end={"t": {0: rows}}, fail_on_data_loss=True
    )
    assert is_brief(Plan(task="run", job=job, mode=mode, reading=reading)) == brief


def java(
    conf: dict[str, Scalar] | None = None,
    *,
    words: Sequence[str] = (),
    master: str = "local[2]",
    home: Path = Path("/spark"),
    **environ: str,
) -> str:
    plans = [
        Plan(task="test", job=a_job(), mode="batch", reading=None),
        Plan(task="run", job=a_job(conf), mode="batch", reading=None),
    ]
    return java_options(plans, master, options_of(words), environ, home)


def test_java_on_this_machine_collects_garbage_for_batches() -> None:
    assert (
        java_options(
            [Plan(task="test", job=a_job(), mode="batch", reading=None)], "local[2]", NO_OPTIONS, {}, Path("/spark")
        )
        == f"{BRIEF} {COLLECTOR}"
    )
    assert java() == COLLECTOR  # one of the jobs is not brief
    assert java(master="yarn") == ""


@pytest.mark.parametrize("option", ["-XX:+UseG1GC", "-Xmn9m -XX:+UseZGC", "-XX:+UseSerialGC -Da=b"])
def test_java_is_never_told_of_two_garbage_collectors(option: str, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"spark.driver.extraJavaOptions {option}")
    assert java({"spark.driver.extraJavaOptions": option}) == ""
    assert java(words=["--driver-java-options", option]) == ""
    assert java(words=["--conf", f"spark.driver.defaultJavaOptions={option}"]) == ""
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        assert java(**{name: option}) == ""
    assert java(SPARK_CONF_DIR=str(tmp_path)) == ""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-env.sh").write_text(f'export SPARK_SUBMIT_OPTS="{option}"')
    assert java(home=tmp_path) == ""
    assert java(words=["--properties-file", "my.conf"]) == ""  # which may name one
    assert java(SPARK_SUBMIT_OPTS="-XX:+UseGCOverheadLimit -XX:-UseG1GC") == COLLECTOR


def test_what_the_user_says_of_the_compiler_counts() -> None:
    said = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=4"}
    found = variables(ENVIRONMENT, "local[2]", Path("/private"), said, BRIEF)["SPARK_SUBMIT_OPTS"]
    assert found.startswith("-XX:TieredStopAtLevel=1 -XX:TieredStopAtLevel=4 ")


def test_java_takes_the_archive_of_classes_that_was_made() -> None:
    assert "SharedArchiveFile" not in variables(ENVIRONMENT, "local", Path("/private"), {})["SPARK_SUBMIT_OPTS"]
    archived = ENVIRONMENT._replace(archive=Path("/cache/a.jsa"))
    found = variables(archived, "local", Path("/private"), {})["SPARK_SUBMIT_OPTS"].split()
    assert '"-XX:SharedArchiveFile=/cache/a.jsa"' in found


def test_paths_may_have_blanks() -> None:
    spaced = ENVIRONMENT._replace(jars=("/my cache/50%.jar",), archive=Path("/my cache/a.jsa"))
    words = command(spaced, a_job(), "local[2]", NO_OPTIONS, ["/private/socket"])
    assert words[words.index("--jars") + 1] == "file:///my%20cache/50%25.jar"
    assert "/my cache/50%.jar" in command(spaced, a_job(), "yarn", NO_OPTIONS, ["/private/socket"])
    found = variables(spaced, "local", Path("/my tmp"), {})["SPARK_SUBMIT_OPTS"]
    assert shlex.split(found) == [
        "-XX:SharedArchiveFile=/my cache/a.jsa",
        "-Xlog:cds=off",
        "-Xlog:cds+dynamic=off",
        "-Dlog4j2.configurationFile=file:///my%20tmp/log4j2.properties",
        "-Djava.io.tmpdir=/my tmp",
    ]
