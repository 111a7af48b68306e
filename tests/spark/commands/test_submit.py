"""`kctl etl submit`: what it runs, and everything that is refused before Spark starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkad_etl.commands.run import run as run_job
from kafkad_etl.commands.submit import operand, submit
from kafkad_etl.machine import environment
from kafkad_etl.machine.environment import Environment
from kafkad_etl.machine.java import Java
from tests.kctl.conftest import Kctl


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    here = Environment(Java(Path("/jdk"), "21", "PATH"), Path("/spark"), "4.0.0", "/python", ("/kafka.jar",))
    monkeypatch.setattr(environment, "find_for_program", lambda *_, **__: here)
    Path("good.py").write_text("print(1)\n")
    Path("bad.py").write_text("x = 1\ndef f(:\n")
    Path("nul.py").write_bytes(b"x = \0\n")
    Path("dir.py").mkdir()
    Path("job.yaml").write_text("version: 1\nnme: x\n")
    Path("notes.txt").touch()


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["job.yaml", "--var", "day=1"], "job.yaml"),
        (["--var", "day=1.py", "job.yaml"], "job.yaml"),
        (["--files", "conf.yaml", "a.py"], "a.py"),
        (["--master=yarn", "-q", "-c", "prod", "a.py", "--", "job.yaml"], "a.py"),
        (["--queue", "q", "--", "a.py"], ""),
        ([], ""),
    ],
)
def test_the_file_is_the_first_word_that_is_no_options(words: Sequence[str], file: str) -> None:
    assert operand(words, (*submit.params, *run_job.params)) == file


@pytest.mark.parametrize("file", ["job.yaml", "job.yml", "JOB.YAML"])
def test_a_job_is_run_as_run_does(kctl: Kctl, file: str) -> None:
    if not Path(file).exists():
        Path("job.yaml").rename(file)
    ran = kctl("etl", "submit", "--var", "day=1", file)
    assert (ran.code, f"{file}:2" in ran.err) == (2, True)
    assert kctl("etl", "submit", file, "--help").out.startswith("Usage: kctl etl submit [OPTIONS] JOB... ")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("", 2, "Missing argument 'PROGRAM.py|JOB.yaml'."),
        ("notes.txt", 2, "notes.txt is neither a job (.yaml) nor a program (.py)"),
        ("nope.py", 2, "nope.py: no such file or directory"),
        ("dir.py", 2, "dir.py: is a directory"),
        ("bad.py", 2, "bad.py:2: invalid syntax"),
        ("nul.py", 2, "nul.py"),
        ("good.py one two", 2, "the program's arguments go after --: good.py … -- one two"),
        ("good.py --py-files good.py,lib.zip", 2, "--py-files: lib.zip: no such file"),
        ("good.py --archives file:///no/env.tar.gz#env", 2, "--archives: /no/env.tar.gz: no such file"),
        ("good.py --conf spark.archives=env.zip#env", 2, "spark.archives: env.zip: no such file"),
        ("good.py --properties-file no.conf", 2, "--properties-file: no.conf: no such file"),
        ("file:///no/program.py", 2, "file:///no/program.py: no such file or directory"),
        ("good.py --pyfiles lib.zip", 2, "--py-files"),
        ("good.py --conf spark.x", 2, '--conf "spark.x" is not NAME=VALUE'),
        ("good.py --deploy-mode cluster", 2, "deploy mode cluster is not supported"),
        ("good.py --conf spark.submit.deployMode=cluster", 2, "deploy mode cluster is not supported"),
        ("good.py --master spark://127.0.0.1:1", 3, "Spark's master is not responding at 127.0.0.1:1"),
        ("good.py -c nope", 3, "nope"),
    ],
)
def test_what_is_refused(kctl: Kctl, words: str, code: int, told: str) -> None:
    ran = kctl("etl", "submit", *words.split())
    assert (ran.code, ran.out) == (code, "")
    assert told in ran.err


def test_a_token_is_refused_since_sparks_client_cannot_have_it(kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"SECURITY_PROTOCOL": "SASL_SSL", "MECHANISM": "OAUTHBEARER", "TOKEN": "very-secret"}
    for name, value in settings.items():
        monkeypatch.setenv(f"KCTL_{name}", value)
    ran = kctl("etl", "submit", "good.py", "-b", "localhost:1")
    assert ran.code == 2
    assert "an OAUTHBEARER token cannot be passed to Spark's Kafka client" in ran.err
    assert "very-secret" not in ran.err


def test_a_login_by_kerberos_is_refused(kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCTL_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("KCTL_MECHANISM", "GSSAPI")
    ran = kctl("etl", "submit", "good.py", "-b", "localhost:1")
    assert ran.code == 2
    assert "a login with GSSAPI cannot be passed to Spark's Kafka client" in ran.err


def test_dry_run(kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "MECHANISM": "PLAIN", "USERNAME": "u", "PASSWORD": "very-secret"}
    for name, value in settings.items():
        monkeypatch.setenv(f"KCTL_{name}", value)
    Path("conf").mkdir()
    Path("mine.jar").touch()
    Path("conf/spark-defaults.conf").write_text("spark.jars mine.jar\nspark.ui.port 1\n")
    monkeypatch.setenv("SPARK_CONF_DIR", "conf")
    words = [
        "--dry-run",
        "good.py",
        "-b",
        "localhost:1",
        "--conf",
        "spark.x=a b",
        "--executor-memory",
        "2g",
        "--",
        "--conf",
        "-c",
        "x",
    ]
    ran = kctl("etl", "submit", *words)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("JAVA_HOME=/jdk SPARK_HOME=/spark PYSPARK_PYTHON=/python PYSPARK_DRIVER_PYTHON=/python ")
    assert "/spark/bin/spark-submit --executor-memory 2g --jars local:/kafka.jar,mine.jar --conf " in ran.out
    assert ran.out.endswith(" --conf 'spark.x=a b' good.py --conf -c x\n")
    assert "very-secret" not in ran.out
