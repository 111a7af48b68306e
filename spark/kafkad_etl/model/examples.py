"""The example jobs: spark/jobs in the repository, `jobs` in the installed package."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.model.cases import cases_path
from kctl.errors import did_you_mean


class Example(NamedTuple):
    name: str
    description: str
    text: str
    cases: str
    """The file of its tests."""


def examples() -> list[Example]:
    return [_example(file) for file in sorted(_directory().glob("*.yaml"))]


def example(name: str) -> Example:
    known = [one.name for one in examples()]
    if name not in known:
        hints = did_you_mean(name, known) or (f"known: {', '.join(known)}",)
        raise EtlError(f'there is no example "{name}"', EtlExit.USAGE, hints=hints)
    return _example(_directory() / f"{name}.yaml")


def _directory() -> Path:
    package = Path(__file__).parents[1]
    installed = package / "jobs"
    return installed if installed.is_dir() else package.parent / "jobs"


def _example(file: Path) -> Example:
    text = file.read_text(encoding="utf-8")
    described = next((line for line in text.splitlines() if line.startswith("description:")), "")
    cases = cases_path(file).read_text(encoding="utf-8")
    return Example(file.stem, described.removeprefix("description:").strip(), text, cases)
