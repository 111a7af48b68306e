"""The imports of kctl before it does something: most of what a short command costs. No clock is needed to see it
grow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker import KafkadProcess

COSTLY = {
    "asyncio",
    "csv",
    "dataclasses",
    "hashlib",
    "importlib.metadata",
    "json",
    "kafkad.model",
    "kazoo",
    "logging",
    "rich",
    "ssl",
    "subprocess",
    "tomllib",
    "urllib.parse",
    "yaml",
}


def imported(*words: str, **environment: str) -> set[str]:
    """The modules that a command line brings in, beyond those of the interpreter."""
    code = (
        "import sys; before = set(sys.modules); from kctl.cli import run; code = run(sys.argv[1:]);"
        "print(*set(sys.modules) - before, file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return set(done.stderr.split())


def check(modules: set[str], most: int) -> None:
    assert not modules & COSTLY
    own = len([module for module in modules if module.startswith(("kctl", "kafkad"))])
    assert len(modules) <= most, f"{len(modules)} modules, {own} of them ours: {sorted(modules)}"


def test_help() -> None:
    check(imported("--help"), 90)


def test_topics_list(broker: KafkadProcess) -> None:
    check(imported("-b", broker.bootstrap, "topics", "list"), 130)


@pytest.mark.parametrize("line", ["kctl topics ", "kctl topics describe --unh"])
def test_completion(line: str, tmp_path: Path) -> None:
    check(imported(_KCTL_COMPLETE="bash_complete", XDG_CACHE_HOME=str(tmp_path), COMP_LINE=line), 126)
