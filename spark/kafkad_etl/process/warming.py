"""Makes the archive of Spark's classes, by running a small program on Spark that uses what most jobs use."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, TimeoutExpired, run

from kafkad_etl.machine import class_archive
from kafkad_etl.machine.environment import Environment
from kafkad_etl.process.submitting import BRIEF, DRIVER, LOG4J2, variables

_PROGRAM = DRIVER.with_name("warming.py")
_MASTER = "local[1]"
_SECONDS = 900.0


def archive(environment: Environment, cache: Path, environ: Mapping[str, str]) -> str:
    """Makes the archive unless it is there. Returns the reason if there is none in the end: runs work without it."""
    target = class_archive.location(environment.java, environment.spark_home, cache)
    if why := class_archive.unfit(environment.java):
        return why
    try:
        directory = class_archive.claim(environment.spark_home, cache)
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # whoever comes second finds it made
            return "" if target.is_file() else _made(environment, target, environ)
        finally:
            os.close(lock)
    except OSError as error:
        return f"{error.filename or target}: {error.strerror}"


def _made(environment: Environment, target: Path, environ: Mapping[str, str]) -> str:
    part = target.with_suffix(".part")
    with tempfile.TemporaryDirectory() as name:
        private = Path(name)
        (private / "log4j2.properties").write_text(LOG4J2)
        said = variables(environment, _MASTER, private, environ, BRIEF)
        said["SPARK_SUBMIT_OPTS"] += f" {class_archive.making(part)}"
        words = [str(environment.spark_home / "bin" / "spark-submit"), "--master", _MASTER, "--driver-memory", "600m"]
        words += ["--conf", "spark.ui.enabled=false", str(_PROGRAM), name]
        try:
            done = run(
                words, cwd=private, env=said, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, timeout=_SECONDS, check=False
            )
            if done.returncode == 0 and part.is_file():
                part.replace(target)
                return ""
            last = done.stdout.decode(errors="replace").strip().splitlines()[-1:]
            return f"Spark ended with {done.returncode}: {''.join(last)}"
        except TimeoutExpired:
            return f"Spark took longer than {_SECONDS:g} s"
        finally:
            part.unlink(missing_ok=True)
