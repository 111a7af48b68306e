from __future__ import annotations

import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from kafkad_etl.machine.environment import Environment
from kafkad_etl.machine.java import Java
from kafkad_etl.process.programs import Program, driver_python, exit_code, local_files, properties

HERE = Environment(Java(Path("/jdk"), "21", "PATH"), Path("/spark"), "4.0.0", "/venv/python", ("/cache/kafka.jar",))


def settings_of(words: list[str]) -> list[str]:
    return [value for name, value in pairwise(words) if name == "--conf"]


def test_our_jars_and_the_users_are_one_option_since_spark_takes_the_last_only() -> None:
    words = Program("a.py", {"--jars": "mine.jar", "--queue": "night"}, arguments=("--queue", "day")).command(HERE)
    assert words[0] == "/spark/bin/spark-submit"
    assert words[1:5] == ["--jars", "local:/cache/kafka.jar,mine.jar", "--queue", "night"]
    assert words[-3:] == ["a.py", "--queue", "day"]
    by_setting = Program("a.py", conf={"spark.jars": "mine.jar"}).command(HERE)
    assert by_setting[1:3] == ["--jars", "local:/cache/kafka.jar,mine.jar"]
    assert Program("a.py").command(HERE._replace(jars=()))[1] == "--conf"


@pytest.mark.parametrize(
    "program",
    [
        Program("a.py", {"--packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"}),
        Program("a.py", {"--jars": "/lib/spark-sql-kafka-0-10_2.13-4.0.1.jar"}),
        Program("a.py", conf={"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"}),
    ],
)
def test_a_program_may_bring_its_own_connector(program: Program) -> None:
    assert program.brings_connector
    assert not Program("a.py", {"--packages": "org.postgresql:postgresql:42.7.4"}).brings_connector


def test_a_local_master_needs_no_host_name_and_a_cluster_needs_ours() -> None:
    local = Program("a.py", {"--master": "local[2]"})
    assert "spark.driver.host=127.0.0.1" in settings_of(local.command(HERE))
    cluster = Program("a.py", conf={"spark.master": "yarn"})
    assert [each for each in settings_of(cluster.command(HERE)) if "host" in each] == []
    assert cluster.command(HERE)[1:3] == ["--jars", "/cache/kafka.jar"]


def test_settings_of_the_user_win() -> None:
    ours = settings_of(Program("a.py").command(HERE))
    assert any(each.startswith("spark.redaction.regex=") for each in ours)
    given = {"spark.redaction.regex": "x", "spark.driver.host": "h"}
    assert settings_of(Program("a.py", conf=given, given_conf=given).command(HERE)) == [
        "spark.driver.bindAddress=127.0.0.1",
        "spark.redaction.regex=x",
        "spark.driver.host=h",
    ]


def test_variables(tmp_path: Path) -> None:
    found = Program("a.py").variables(HERE, tmp_path, {"SPARK_SUBMIT_OPTS": "-Dmine", "KCTL_PASSWORD": "p"})
    assert found["JAVA_HOME"] == "/jdk"
    assert found["PYSPARK_PYTHON"] == "/venv/python"
    assert found["PYSPARK_DRIVER_PYTHON"] == f"{tmp_path}/python"
    assert found["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert found["KCTL_PASSWORD"] == "p"
    assert found["SPARK_SUBMIT_OPTS"].endswith(" -Dmine")  # Java takes the last of equal ones
    cluster = Program("a.py", {"--master": "yarn"})
    assert "PYSPARK_PYTHON" not in cluster.variables(HERE, tmp_path, {})  # our path means nothing there
    assert cluster.variables(HERE, tmp_path, {"PYSPARK_PYTHON": "env/python"})["PYSPARK_PYTHON"] == "env/python"


def test_the_runs_directory_may_have_a_blank(tmp_path: Path) -> None:
    found = Program("a.py").variables(HERE, tmp_path / "a b", {})["SPARK_SUBMIT_OPTS"]
    assert shlex.split(found)[-1] == f"-Djava.io.tmpdir={tmp_path}/a b"


def test_a_logging_configuration_of_the_users_own(tmp_path: Path) -> None:
    environ = {"SPARK_CONF_DIR": str(tmp_path)}
    assert "log4j2" in Program("a.py").variables(HERE, tmp_path, environ)["SPARK_SUBMIT_OPTS"]
    (tmp_path / "log4j2.properties").touch()
    assert "log4j2" not in Program("a.py").variables(HERE, tmp_path, environ)["SPARK_SUBMIT_OPTS"]


def test_the_programs_python_notes_its_process_id(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(driver_python(HERE._replace(python=sys.executable), {}))
    script.chmod(0o700)
    told = subprocess.run([script, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True)
    assert (tmp_path / "pid").read_text() == told.stdout
    assert "exec /other/python " in driver_python(HERE, {"PYSPARK_PYTHON": "/other/python"})


def test_properties() -> None:
    text = "# a comment\nspark.jars  a.jar,b.jar\nspark.master=yarn \n\nspark.app.name : two words\n! another\n"
    expected = {"spark.jars": "a.jar,b.jar", "spark.master": "yarn", "spark.app.name": "two words"}
    assert properties(text) == expected


def test_files_that_have_to_be_here() -> None:
    options = {
        "--py-files": "a.py,hdfs:///b.zip, file:///lib/with%20blank.zip",
        "--archives": "env.tar.gz#env,file:/opt/env.zip#other",
        "--jars": "lib/*.jar,lib/v[0-9].jar,lib/a?.jar,http://[x/a.jar",
        "--queue": "q",
    }
    conf = {"spark.archives": "not looked at, for the option stands before it", "spark.files": "f.txt,s3a://b/g.txt"}
    assert local_files(options, conf) == [
        ("--py-files", "a.py"),
        ("--py-files", "/lib/with blank.zip"),
        ("spark.files", "f.txt"),
        ("--archives", "env.tar.gz"),
        ("--archives", "/opt/env.zip"),
    ]
    assert local_files({}, {"spark.submit.pyFiles": "a.zip", "spark.jars": "b.jar", "spark.archives": "c.zip#c"}) == [
        ("spark.submit.pyFiles", "a.zip"),
        ("spark.archives", "c.zip"),
        ("spark.jars", "b.jar"),
    ]


def test_exit_codes_are_those_of_shells() -> None:
    assert [exit_code(status) for status in (0, 3, -9, -15)] == [0, 3, 137, 143]
