"""Builds a Debian package of kafkad and kctl with every Python package they need: `python -m deploy.deb DIRECTORY`.

It is made for the Python of this machine's Debian (/usr/bin/python3) and for its architecture. Everything but the
configuration, the units and the man pages is a virtual environment in /usr/lib/kafkad.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from email.parser import HeaderParser
from email.utils import formatdate
from pathlib import Path
from textwrap import indent

from deploy import man, sbom

SOURCE = Path(__file__).parents[1]
PYTHON = Path("/usr/bin/python3")
HOME = "usr/lib/kafkad"
_LEAST_PYTHON = (3, 11)
_PROGRAMS = ("kafkad", "kctl")
_MAINTAINER = "kafkad's makers <kafkad@localhost>"
_SCRIPTS = ("postinst", "prerm", "postrm")


class Missing(Exception):
    """A tool that is missing to build the package, and how to install it."""


def build(into: Path, effort: int = 6) -> Path:
    """Builds the package and returns its path. `effort`: of the compression, 0 to 9."""
    minor = _python_version()
    version = str(tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]["version"])
    architecture = _said(_tool("dpkg"), "--print-architecture")
    into.mkdir(parents=True, exist_ok=True)
    package = into / f"kafkad_{version}_{architecture}.deb"
    with tempfile.TemporaryDirectory(prefix="kafkad-deb-") as work:
        root = Path(work) / "root"
        packages = _environment(root, minor, Path(work))
        for step in (_programs, _configuration, _units, _pages, _completion, _watching):
            step(root)
        _documents(root, version, packages)
        _control(root, version, architecture, minor)
        root.chmod(0o755)
        _run(_tool("dpkg-deb"), "--root-owner-group", "-Zxz", f"-z{effort}", "--build", str(root), str(package))
    return package


# What has to be there


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is missing: apt-get install dpkg")
    return found


def _python_version() -> tuple[int, int]:
    """The version of the Python that the package will run on."""
    if not PYTHON.exists():
        raise Missing(f"{PYTHON} is missing, which the package runs on: apt-get install python3")
    major, minor = map(int, _said(str(PYTHON), "-c", "import sys; print(*sys.version_info[:2])").split())
    if (major, minor) < _LEAST_PYTHON:
        raise Missing(f"{PYTHON} is {major}.{minor}; kafkad needs 3.11 or later, Debian 12 or later has it")
    return major, minor


# What is in it


def _environment(root: Path, python: tuple[int, int], work: Path) -> Path:
    """Builds a virtual environment for Debian's Python and returns the directory of its packages."""
    version = ".".join(map(str, python))
    home = root / HOME
    packages = home / "lib" / f"python{version}" / "site-packages"
    packages.mkdir(parents=True)
    (home / "bin").mkdir()
    (home / "bin" / "python3").symlink_to(os.path.relpath(PYTHON, f"/{HOME}/bin"))
    (home / "pyvenv.cfg").write_text(f"home = {PYTHON.parent}\ninclude-system-site-packages = false\n")
    target = (
        "--target",
        str(packages),
        "--python-version",
        version,
        "--only-binary=:all:",
        "--no-deps",
        "--no-compile",
    )
    _pip("install", *target, "--require-hashes", "-r", str(SOURCE / "deploy/requirements.txt"))
    _pip("install", *target, str(_wheel(work)))
    shutil.rmtree(packages / "bin", ignore_errors=True)
    return packages


def _wheel(work: Path) -> Path:
    """kafkad's own, built by tools whose hashes are checked."""
    tools = work / "tools"
    requirements = str(SOURCE / "deploy/build-requirements.txt")
    _pip("install", "--no-deps", "--target", str(tools), "--require-hashes", "-r", requirements)
    built = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(work), str(SOURCE))
    _pip("wheel", *built, PYTHONPATH=str(tools))
    (wheel,) = work.glob("kafkad-*.whl")
    return wheel


def _pip(*arguments: str, **environment: str) -> None:
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    subprocess.run((*pip, *arguments), check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment})


def _programs(root: Path) -> None:
    for name in _PROGRAMS:
        program = _written(root / "usr/bin" / name, f'#!/bin/sh\nexec /{HOME}/bin/python3 -I -m {name} "$@"\n')
        program.chmod(0o755)


def _configuration(root: Path) -> None:
    _written(root / "etc/kafkad/kafkad.yaml", (SOURCE / "etc/kafkad.yaml").read_text())


def _units(root: Path) -> None:
    for unit in (SOURCE / "systemd").iterdir():
        text = unit.read_text().replace("/usr/local/bin/kafkad", "/usr/bin/kafkad")
        _written(root / "lib/systemd/system" / unit.name, text)


def _pages(root: Path) -> None:
    for name, text in man.pages().items():
        _zipped(root / "usr/share/man" / f"man{name[-1]}" / name, text)


def _completion(root: Path) -> None:
    script = _said(sys.executable, "-m", "kctl", "completion", "bash")
    _written(root / "usr/share/bash-completion/completions/kctl", script + "\n")


def _watching(root: Path) -> None:
    for kind in ("grafana", "prometheus"):
        for file in (SOURCE / "deploy" / kind).iterdir():
            _written(root / "usr/share/kafkad" / kind / file.name, file.read_text())


def _documents(root: Path, version: str, packages: Path) -> None:
    documents = root / "usr/share/doc/kafkad"
    _written(documents / "copyright", _copyright(packages))
    _zipped(documents / "sbom.cdx.json", sbom.text(packages))
    stamp = formatdate(int(os.environ.get("SOURCE_DATE_EPOCH", _last_change())))
    entry = f"kafkad ({version}) stable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- {_MAINTAINER}  {stamp}\n"
    _zipped(documents / "changelog", entry)
    for document in ("README.md", "CHANGELOG.md", "docs/operate.md"):
        _zipped(documents / Path(document).name, (SOURCE / document).read_text())
    _written(root / "usr/share/lintian/overrides/kafkad", (SOURCE / "deploy/debian/lintian-overrides").read_text())


def _last_change() -> str:
    return str(int((SOURCE / "CHANGELOG.md").stat().st_mtime))


def _copyright(packages: Path) -> str:
    """The bundled Python packages, each with the licence its author declares."""
    brought = "\n".join(sorted(_brought(packages), key=str.lower))
    return (
        "kafkad and kctl are their makers'; see pyproject.toml and README.md in their sources.\n\n"
        f"These Python packages come with them, with their licences beside them in /{HOME}/lib:\n\n{brought}\n\n"
        "Copyright 2026 the makers of kafkad; of each package its own authors.\n"
        "Where the licence is Apache-2.0, its text is in /usr/share/common-licenses/Apache-2.0.\n"
    )


def _brought(packages: Path) -> Iterator[str]:
    for file in packages.glob("*.dist-info/METADATA"):
        told = HeaderParser().parsestr(file.read_text(errors="replace"))
        if told["Name"] != "kafkad":
            yield f"  {told['Name']} {told['Version']}: {sbom.licence(told)}"


# What dpkg wants to know


def _control(root: Path, version: str, architecture: str, python: tuple[int, int]) -> None:
    major, minor = python
    control = root / "DEBIAN"
    depends = [f"python3 (>= {major}.{minor})", f"python3 (<< {major}.{minor + 1})", "adduser", "libc6", "libgcc-s1"]
    size = sum(file.lstat().st_size for file in root.rglob("*") if file.is_file() and not file.is_symlink()) // 1024
    text = (
        f"Package: kafkad\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {_MAINTAINER}\n"
        f"Installed-Size: {size}\nDepends: {', '.join(depends)}\nSection: net\nPriority: optional\n"
        "Description: Kafka broker without a JVM, and a command line for any Kafka\n"
        + indent(
            "kafkad speaks Kafka's protocol and keeps Kafka 3.9's files: clients and\ntools take it for Kafka. "
            "kctl operates kafkad, and any other Kafka.",
            " ",
        )
        + "\n"
    )
    _written(control / "control", text)
    _written(control / "conffiles", "/etc/kafkad/kafkad.yaml\n")
    for name in _SCRIPTS:
        _written(control / name, (SOURCE / "deploy/debian" / name).read_text()).chmod(0o755)
    _each_file(root, lambda file: file.chmod(0o755 if os.access(file, os.X_OK) else 0o644))
    _written(control / "md5sums", "".join(_sums(root)))


def _sums(root: Path) -> Iterator[str]:
    names = [str(f.relative_to(root)) for f in sorted(root.rglob("*")) if f.is_file() and "DEBIAN" not in f.parts]
    files = [name for name in names if not (root / name).is_symlink() and not name.startswith("etc/")]
    said = subprocess.run(["md5sum", *files], cwd=root, capture_output=True, text=True, check=True)
    yield said.stdout


def _each_file(root: Path, do: Callable[[Path], None]) -> None:
    for path in root.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
        elif not path.is_symlink():
            do(path)


# Helpers


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _zipped(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(f"{path}.gz", "wb", mtime=0, compresslevel=9) as file:
        file.write(text.encode())


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main(arguments: Sequence[str]) -> int:
    try:
        print(build(Path(arguments[0])))
    except Missing as missing:
        print(f"make deb: {missing}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
