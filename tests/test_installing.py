"""The parts of an installation: dependencies, extras, and the wheel itself."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = {"kafkad", "kctl", "kafkad_etl"}
IMPORT = re.compile(r"^ *(?:from (\w+)[\w.]* import|import (\w+)(?!.*;$))", re.MULTILINE)
"""Of modules of Python: the Java sources among them end their lines with a semicolon."""
MODULES = {"pyyaml": "yaml", "python-snappy": "snappy", "PyJWT": "jwt", "protobuf": "google"}
"""Of packages whose module has another name."""
NOT_REQUIRED = {"cramjam": "what python-snappy is made of", "py4j": "what PySpark is made of", "uvloop": "extra fast"}

WITHOUT_ETL = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("msgspec", "sqlglot"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from kctl.__main__ import main
main()
"""


def brought_by(*extras: str) -> set[str]:
    """Modules of the base dependencies and of these extras."""
    wanted = [*PROJECT["dependencies"]]
    for extra in extras:
        wanted += PROJECT["optional-dependencies"][extra]
    names = [re.split(r"[\[<>=,]", text)[0] for text in wanted]
    return {MODULES.get(name, name) for name in names}


def imported(*packages: str) -> set[str]:
    """Modules of others that the sources import, anywhere in them."""
    paths = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    found = {name for path in paths for names in IMPORT.findall(path.read_text()) for name in names if name}
    return found - OURS - set(sys.stdlib_module_names) - NOT_REQUIRED.keys()


def test_base_dependencies_are_what_kafkad_and_kctl_import() -> None:
    assert imported("kafkad", "kctl") <= brought_by("security", "kerberos")
    assert brought_by("security", "kerberos") <= imported("kafkad", "kctl")


def test_the_extras_are_what_jobs_import() -> None:
    assert imported("spark/kafkad_etl") <= brought_by("etl", "spark")
    assert {"msgspec", "sqlglot"}.isdisjoint(imported("kafkad", "kctl"))


def run(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=cwd)


@pytest.mark.parametrize("arguments", ["list", "validate job.yaml", "run job.yaml"])
def test_without_its_extra_kctl_etl_names_it_and_the_command_that_installs_it(arguments: str, tmp_path: Path) -> None:
    told = run(sys.executable, "-c", WITHOUT_ETL, "etl", *arguments.split(), cwd=tmp_path)
    assert told.returncode == 1
    first, *hints = told.stderr.splitlines()
    assert re.fullmatch(r'error: the Python package \w+ is missing: it comes with kafkad\'s extra "etl"', first)
    assert hints == [
        f"       {sys.executable} -m pip install 'msgspec>=0.19' 'sqlglot>=26'",
        "       or in a clone of kafkad: pip install '.[etl]'",
    ]


def test_without_the_extra_all_else_works(tmp_path: Path) -> None:
    for arguments in ("version", "--help", "etl --help", "etl run --help", "groups lag --help"):
        told = run(sys.executable, "-c", WITHOUT_ETL, *arguments.split(), cwd=tmp_path)
        assert told.returncode == 0, told.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_wheel_installs_alone_and_runs(tmp_path: Path) -> None:
    """In an environment of its own, with what pip finds that it needs, and nothing of this clone."""
    built = run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT))
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("kafkad-*.whl")
    venv.create(tmp_path / "venv")
    programs = tmp_path / "venv" / "bin"
    installed = run(sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet", str(wheel))
    assert installed.returncode == 0, installed.stderr
    version = PROJECT["version"]
    for command, text in (
        ("kafkad --version", f"kafkad {version}"),
        ("kafkad --check", "configuration is good"),
        ("kctl version", version),
        ("kctl --version", version),
        ("kctl etl --help", "Usage: kctl etl"),
    ):
        program, *arguments = command.split()
        told = run(str(programs / program), *arguments, cwd=tmp_path)
        assert told.returncode == 0, told.stderr
        assert text in told.stdout
    told = run(str(programs / "kctl"), "etl", "list", cwd=tmp_path)
    assert 'kafkad\'s extra "etl"' in told.stderr
    assert f"{programs}/" in told.stderr
