"""What the Debian package and the image are made of: one version of each package, checked by hashes, and told."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from deploy import sbom

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SHIPPED = ("fast", "etl", "security")


def lock(name: str = "requirements.txt") -> dict[str, str]:
    """Versions by name."""
    return {package: version for package, version in sbom.locked((ROOT / "deploy" / name).read_text())}


def test_every_line_of_the_locks_is_read() -> None:
    for name in ("requirements.txt", "build-requirements.txt"):
        text = (ROOT / "deploy" / name).read_text()
        found = sbom.locked(text)
        assert len(found) == text.count("==")
        assert sum(map(len, found.values())) == text.count("--hash=sha256:") == len(text.splitlines()) - len(found)


def test_what_kafkad_asks_for_is_locked_in_a_version_that_will_do() -> None:
    asked = [*PROJECT["dependencies"], *(line for extra in SHIPPED for line in PROJECT["optional-dependencies"][extra])]
    for line in asked:
        requirement = Requirement(line)
        assert requirement.specifier.contains(lock()[sbom.normal(requirement.name)]), line
    assert "hatchling" in lock("build-requirements.txt")


@pytest.mark.parametrize("file", ["Dockerfile", "deploy/deb.py"])
def test_nothing_is_installed_unchecked(file: str) -> None:
    """Only kafkad's own wheel, just built, has no hash; nothing is looked up that is not in the lock."""
    text = (ROOT / file).read_text()
    assert text.count("--require-hashes") == 2
    assert text.count("--no-build-isolation") == 1
    assert text.count("--no-deps") >= 2


def installed(into: Path, name: str, version: str) -> None:
    directory = into / f"{name}-{version}.dist-info"
    directory.mkdir()
    (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense: MIT\n\n")


def test_a_bill_of_materials(tmp_path: Path) -> None:
    installed(tmp_path, "kafkad", "0.1.0")
    installed(tmp_path, "PyYAML", lock()["pyyaml"])
    made = json.loads(sbom.text(tmp_path))
    assert made["metadata"]["component"] == {"type": "application", "name": "kafkad", "version": "0.1.0"}
    [component] = made["components"]
    assert component["purl"] == f"pkg:pypi/pyyaml@{lock()['pyyaml']}"
    assert component["licenses"] == [{"license": {"name": "MIT"}}]
    assert all(len(each["value"]) == 64 for each in component["properties"])


def test_what_was_not_checked_is_not_shipped(tmp_path: Path) -> None:
    installed(tmp_path, "pyyaml", "0.0.1")
    done = subprocess.run([sys.executable, ROOT / "deploy/sbom.py", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "deploy.sbom: pyyaml 0.0.1 is installed, but not in requirements.txt\n"
