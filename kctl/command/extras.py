"""A Python package that is not installed: which of kafkad's extras brings it, and the command that installs it."""

from __future__ import annotations

import re
import shlex
import sys
from importlib.metadata import PackageNotFoundError, requires

from kctl.errors import KctlError

_OF_AN_EXTRA = re.compile(r"""(?P<name>[\w.-]+)(?P<versions>[^;\[]*); *extra == ["'](?P<extra>[\w-]+)["']""")


def missing(error: ModuleNotFoundError) -> KctlError | None:
    """None for a module that no extra brings: that it is missing is a defect."""
    package = (error.name or "").partition(".")[0]
    for extra, packages in _extras().items():
        if package in packages:
            install = shlex.join([sys.executable, "-m", "pip", "install", *packages.values()])
            return KctlError(
                f'the Python package {package} is missing: it comes with kafkad\'s extra "{extra}"',
                hints=(install, f"or in a clone of kafkad: pip install '.[{extra}]'"),
            )
    return None


def _extras() -> dict[str, dict[str, str]]:
    """The packages of each extra, with the versions that kafkad's own metadata asks for."""
    try:
        required = requires("kafkad") or []
    except PackageNotFoundError:
        return {}
    found: dict[str, dict[str, str]] = {}
    for requirement in filter(None, map(_OF_AN_EXTRA.match, required)):
        name, versions, extra = requirement.group("name", "versions", "extra")
        found.setdefault(extra, {})[name] = f"{name}{versions.strip()}"
    return found
