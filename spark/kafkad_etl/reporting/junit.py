"""Results of tests as JUnit XML, which CI servers show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree


class TestCase(NamedTuple):
    job: Path
    name: str
    seconds: float
    differences: Sequence[str]


def junit(cases: Sequence[TestCase]) -> bytes:
    """One suite for each job."""
    root = ElementTree.Element("testsuites")
    for job in dict.fromkeys(case.job for case in cases):
        ours = [case for case in cases if case.job == job]
        failures = sum(bool(case.differences) for case in ours)
        seconds = f"{sum(case.seconds for case in ours):.3f}"
        about = {"name": str(job), "tests": str(len(ours)), "failures": str(failures), "errors": "0", "time": seconds}
        suite = ElementTree.SubElement(root, "testsuite", about)
        for case in ours:
            about = {"name": case.name, "classname": job.stem, "time": f"{case.seconds:.3f}"}
            element = ElementTree.SubElement(suite, "testcase", about)
            if case.differences:
                failure = ElementTree.SubElement(element, "failure", {"message": _printable(case.differences[0])})
                failure.text = _printable("\n".join(case.differences))
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _printable(text: str) -> str:
    """Without characters that XML does not allow."""
    return "".join(sign if sign in "\n\t" or sign.isprintable() else "�" for sign in text)
