"""Builds spark-submit's command line and environment for a user's own program. Pure.

The command line is visible to everyone on the machine and has no secrets: the login is in the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kafkad_etl.facts import REDACTED, SECRET_WORDS
from kafkad_etl.machine.environment import Environment, tool_variables
from kafkad_etl.machine.java import quoted
from kafkad_etl.process.submitting import is_local, jar_url, joined

LOG4J2 = "log4j2.properties"
_CONNECTOR = "spark-sql-kafka-0-10"


class Program(NamedTuple):
    file: str
    """A path or a URL."""
    options: Mapping[str, str] = {}
    """spark-submit's options by name, such as --queue; those that are here and in `conf` are combined."""
    conf: Mapping[str, str] = {}
    """Spark settings: those of the command line over those of spark-defaults.conf or --properties-file."""
    given_conf: Mapping[str, str] = {}
    """Those of the command line alone."""
    arguments: tuple[str, ...] = ()

    @property
    def master(self) -> str:
        return self.options.get("--master") or self.conf.get("spark.master") or "local[*]"

    @property
    def driver_memory(self) -> str:
        return self.options.get("--driver-memory") or self.conf.get("spark.driver.memory") or "1g"

    @property
    def brings_connector(self) -> bool:
        """True if it names the Kafka connector itself; two versions of it would get in each other's way."""
        named = (self.options.get("--packages"), self.conf.get("spark.jars.packages"), self._own_jars)
        return any(_CONNECTOR in text for text in named if text)

    @property
    def _own_jars(self) -> str:
        return self.options.get("--jars") or self.conf.get("spark.jars") or ""

    def command(self, environment: Environment) -> list[str]:
        words = [str(environment.spark_home / "bin" / "spark-submit")]
        ours = [jar_url(jar, self.master) for jar in environment.jars]
        options = {**self.options, "--jars": joined(",", *ours, self._own_jars)}
        for name, value in options.items():
            words += [name, value] if value else []
        for name, value in {**self._defaults(), **self.given_conf}.items():
            words += ["--conf", f"{name}={value}"]
        return [*words, self.file, *self.arguments]

    def _defaults(self) -> dict[str, str]:
        defaults = {REDACTED: SECRET_WORDS}
        if is_local(self.master):
            defaults |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        return {name: value for name, value in defaults.items() if name not in self.conf}

    def variables(self, environment: Environment, directory: Path, environ: Mapping[str, str]) -> dict[str, str]:
        """Environment variables for spark-submit. `environ` wins where it chooses a Python, an address or Java's
        options. `directory` is the run's private one."""
        python = str(directory / DRIVER_PYTHON)
        defaults = {"SPARK_LOCAL_IP": "127.0.0.1"} if is_local(self.master) else {}
        tools = tool_variables(environment)
        executors_python = tools.pop("PYSPARK_PYTHON")
        if is_local(self.master):
            defaults["PYSPARK_PYTHON"] = executors_python  # on other machines, this path would be nobody's
        ours = tools | {
            "PYSPARK_DRIVER_PYTHON": python,
            "TMPDIR": str(directory),
            "SPARK_LOCAL_DIRS": str(directory),
            "SPARK_SUBMIT_OPTS": joined(
                " ",
                "" if _has_logging(environ) else f"-Dlog4j2.configurationFile={(directory / LOG4J2).as_uri()}",
                quoted(f"-Djava.io.tmpdir={directory}"),
                environ.get("SPARK_SUBMIT_OPTS", ""),
            ),
        }
        return {**defaults, **environ, **ours}


DRIVER_PYTHON, DRIVER_PID = "python", "pid"


def driver_python(environment: Environment, environ: Mapping[str, str]) -> str:
    """The script that runs the program's Python. It notes its process id, by which Ctrl-C reaches the program."""
    import shlex

    real = environ.get("PYSPARK_DRIVER_PYTHON") or environ.get("PYSPARK_PYTHON") or environment.python
    return f'#!/bin/sh\necho $$ > "$(dirname "$0")/{DRIVER_PID}"\nexec {shlex.quote(real)} "$@"\n'


def _has_logging(environ: Mapping[str, str]) -> bool:
    """True if the user's configuration of Spark says what is logged."""
    directory = environ.get("SPARK_CONF_DIR", "")
    return bool(directory) and (Path(directory) / LOG4J2).is_file()


def properties(text: str) -> dict[str, str]:
    """Parses spark-defaults.conf: a name and a value on each line, with blanks, = or : between them."""
    import re

    found = {}
    for line in text.splitlines():
        if match := re.match(r"\s*([^\s#!=:][^\s=:]*)\s*[=:\s]\s*(.*?)\s*$", line):
            found[match[1]] = match[2]
    return found


_SETTINGS = {
    "--py-files": "spark.submit.pyFiles",
    "--files": "spark.files",
    "--archives": "spark.archives",
    "--jars": "spark.jars",
}
"""Settings that name files as these options do, which stand before them."""


_PATTERN = frozenset("*?[{")


def local_files(options: Mapping[str, str], conf: Mapping[str, str]) -> list[tuple[str, str]]:
    """Files on this machine's disk that options or settings name, each with where it is named. Patterns and URLs of
    other places are left to Spark."""
    named = [("--properties-file", options.get("--properties-file", ""))]
    for option, setting in _SETTINGS.items():
        named.append((option, options[option]) if options.get(option) else (setting, conf.get(setting, "")))
    found = []
    for where, names in named:
        paths = (local_path(name.strip().partition("#")[0]) for name in names.split(","))
        found += [(where, path) for path in paths if path and not _PATTERN.intersection(path)]
    return found


def local_path(name: str) -> str | None:
    """The path of a file that is named by it, or by a URL; None if it is in another place."""
    from urllib.parse import unquote, urlsplit

    if ":" not in name:
        return name
    try:
        parts = urlsplit(name)
    except ValueError:
        return None  # Spark says what is wrong with it
    return unquote(parts.path) if parts.scheme == "file" else None


def exit_code(status: int) -> int:
    """A process's exit code, as shells have it: 128 plus the number of the signal that ended it."""
    return status if status >= 0 else 128 - status
