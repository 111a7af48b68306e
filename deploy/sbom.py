"""A bill of materials: `python -m deploy.sbom DIRECTORY > sbom.cdx.json` names all Python packages installed there.

CycloneDX 1.5, as scanners read it: each package with its version, licence, and the hashes of the files that its index
has for it, of which the installed one was checked to be one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

LOCK = Path(__file__).with_name("requirements.txt")
OWN = "kafkad"
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?: *\\\n +--hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


class Unlocked(Exception):
    """A package is installed that no hash was checked of."""


def locked(text: str) -> dict[tuple[str, str], list[str]]:
    """Hashes by name and version."""
    return {
        (normal(name), version): re.findall(r"sha256:([0-9a-f]{64})", hashes)
        for name, version, hashes in _PINNED.findall(text)
    }


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def bill(packages: Path, lock: Mapping[tuple[str, str], Sequence[str]]) -> dict[str, Any]:
    installed = sorted(_installed(packages), key=lambda told: normal(told["Name"]))
    own = [told for told in installed if normal(told["Name"]) == OWN]
    others = [told for told in installed if told not in own]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": OWN, "version": own[0]["Version"] if own else ""}},
        "components": [_component(told, lock) for told in others],
    }


def _installed(packages: Path) -> Iterator[Message]:
    for file in packages.glob("*.dist-info/METADATA"):
        yield HeaderParser().parsestr(file.read_text(errors="replace"))


def _component(told: Message, lock: Mapping[tuple[str, str], Sequence[str]]) -> dict[str, Any]:
    name, version = normal(told["Name"]), told["Version"]
    hashes = lock.get((name, version))
    if hashes is None:
        raise Unlocked(f"{name} {version} is installed, but not in {LOCK.name}")
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
        "licenses": [{"license": {"name": licence(told)}}],
        "properties": [{"name": "kafkad:sha256-of-file", "value": value} for value in hashes],
    }


def licence(told: Message) -> str:
    """As its author declares it."""
    classifiers = [line.rpartition(" :: ")[2] for line in told.get_all("Classifier", []) if "License" in line]
    declared = (told.get("License") or "").split("\n")[0]
    return told.get("License-Expression") or ", ".join(classifiers) or declared or "see its files"


def text(packages: Path) -> str:
    return json.dumps(bill(packages, locked(LOCK.read_text())), indent=1) + "\n"


if __name__ == "__main__":
    try:
        sys.stdout.write(text(Path(sys.argv[1])))
    except Unlocked as error:
        sys.exit(f"deploy.sbom: {error}")
