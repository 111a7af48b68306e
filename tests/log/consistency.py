"""What is wrong with a partition, for the end of every test that has a log."""

from __future__ import annotations

from kafkad.log.check import Problem, examine
from kafkad.log.files import Files


def check(directory: str) -> list[Problem]:
    """Everything that is wrong with one partition."""
    return examine(directory, Files()).problems
