"""The root: what it lists, what it imports, how it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module

import click
import pytest

from kctl.cli import COMMANDS, root
from kctl.command.noun import LazyGroup
from kctl.command.options import options
from kctl.command.verb import KctlCommand
from kctl.errors import Exit, KctlError
from kctl.settings import Settings
from tests.kctl.conftest import Kctl


def commands(group: LazyGroup = root, path: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, str]]]:
    """Every command there is, as `topics list`, and its entry in its group's table."""
    for name, entry in group.lazy.items():
        yield " ".join((*path, name)), entry
        command = group.get_command(click.Context(group), name)
        if isinstance(command, LazyGroup):
            yield from commands(command, (*path, name))


COMMANDS_AND_VERBS = dict(commands())


def loaded(path: str) -> click.Command:
    module, _, attribute = COMMANDS_AND_VERBS[path][0].partition(":")
    command: click.Command = getattr(import_module(module), attribute)
    return command


@pytest.mark.parametrize("path", COMMANDS_AND_VERBS)
def test_tables_of_commands_say_what_the_commands_say(path: str) -> None:
    command = loaded(path)
    assert isinstance(command, (KctlCommand, LazyGroup))
    assert command.name == path.rpartition(" ")[2]
    assert (command.help or "").splitlines()[0] == COMMANDS_AND_VERBS[path][1]


@pytest.mark.parametrize("path", COMMANDS_AND_VERBS)
def test_no_command_gives_a_common_option_another_meaning(path: str) -> None:
    spellings = [spelling for parameter in loaded(path).params for spelling in parameter.opts]
    assert len(spellings) == len(set(spellings))
    assert {spelling for option in options() for spelling in option.opts} <= set(spellings)


@pytest.mark.parametrize("path", COMMANDS_AND_VERBS)
def test_every_command_has_an_example(path: str) -> None:
    command = loaded(path)
    assert isinstance(command, LazyGroup) or f"kctl {path}" in (command.help or "")


def test_help_lists_the_commands_without_importing_them() -> None:
    code = "import sys; from kctl.cli import run; run(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.rstrip("\n").rpartition("\n")[2].split())
    assert all(f"  {name} " in done.stdout for name in COMMANDS)
    unwanted = {module.partition(":")[0] for module, _ in COMMANDS.values()}
    unwanted |= {"asyncio", "rich", "yaml", "json", "ssl", "logging", "dataclasses", "socket", "importlib.metadata"}
    assert not loaded & unwanted


def test_unknown_command(kctl: Kctl) -> None:
    ran = kctl("versoin")
    assert ran == (Exit.USAGE, "", 'error: there is no command "versoin"\n       did you mean "version"?\n')


def test_unknown_option(kctl: Kctl) -> None:
    ran = kctl("version", "--frob")
    assert ran.code == Exit.USAGE
    assert ran.err.startswith("error: No such option")
    assert "kctl version --help" in ran.err


def test_common_options_before_and_after_the_command(kctl: Kctl) -> None:
    before, after = kctl("-o", "json", "version"), kctl("version", "-o", "json")
    assert before == after
    assert json.loads(before.out)["items"][0]["kafka"] == "3.9"
    assert kctl("-o", "json", "version", "-o", "name").out.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (
            KctlError("topic is not there", code="UNKNOWN", exit_code=Exit.NOT_FOUND, hints=["look", "again"]),
            3,
            "error: topic is not there (UNKNOWN)\n       look\n       again\n",
        ),
        (FileNotFoundError(2, "No such file or directory", "/a/b"), 3, "error: /a/b: No such file or directory\n"),
        (PermissionError(13, "Permission denied", "/a/b"), 1, "error: /a/b: Permission denied\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (RuntimeError("oh"), 1, "error: RuntimeError: oh\n       this is a bug in kctl: please report it"),
    ],
)
def test_failures(monkeypatch: pytest.MonkeyPatch, kctl: Kctl, error: BaseException, code: int, text: str) -> None:
    @click.command("version", cls=KctlCommand)
    def failing() -> None:
        raise error

    monkeypatch.setattr("kctl.version.version", failing)
    ran = kctl("version")
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith(text)
    assert "Traceback" not in ran.err


def test_ctrl_c_while_it_is_imported() -> None:
    code = """
import sys
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from kctl.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (Exit.INTERRUPTED, "interrupted\n")


def test_failure_as_json_has_the_shape_of_success(monkeypatch: pytest.MonkeyPatch, kctl: Kctl) -> None:
    @click.command("version", cls=KctlCommand)
    def failing() -> None:
        raise KctlError("no", code="NO", hints=["yes"])

    monkeypatch.setattr("kctl.version.version", failing)
    ran = kctl("version", "-o", "json")
    assert json.loads(ran.out) == {
        "kctl": 1,
        "command": "version",
        "cluster_id": None,
        "items": [],
        "errors": [{"error": "no", "code": "NO", "hints": ["yes"]}],
    }
    assert ran.err == "error: no (NO)\n       yes\n"


def test_reader_that_goes_away_is_no_error() -> None:
    code = "from kctl.__main__ import main; import sys; sys.argv = ['kctl', 'version']; main()"
    read = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert read.stdout and read.stderr
    read.stdout.close()
    assert read.stderr.read() == b""
    read.stderr.close()
    assert read.wait() == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(kctl: Kctl, shell: str) -> None:
    ran = kctl("completion", shell)
    assert ran.code == 0
    assert "_KCTL_COMPLETE" in ran.out


def test_completes_names_without_importing_commands() -> None:
    found = root.shell_complete(click.Context(root), "v")
    assert [(item.value, item.help) for item in found] == [("version", COMMANDS["version"][1])]


@pytest.mark.parametrize(
    ("environment", "color", "terminal", "colored"),
    [
        ({}, "auto", True, True),
        ({}, "auto", False, False),
        ({"NO_COLOR": "1"}, "auto", True, False),
        ({"TERM": "dumb"}, "auto", True, False),
        ({"FORCE_COLOR": "1"}, "auto", False, True),
        ({"NO_COLOR": "1"}, "always", False, True),
        ({}, "never", True, False),
    ],
)
def test_when_there_are_colours(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], color: str, terminal: bool, colored: bool
) -> None:
    class Stream:
        def isatty(self) -> bool:
            return terminal

    for name in ("NO_COLOR", "TERM", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    settings.color = color
    assert settings.colored(Stream()) is colored


def test_no_field_was_renamed(approved: Callable[[str, str], None]) -> None:
    """Scripts read them: fields may be added, and then the approved list grows."""
    lines = [
        f"{path}: {' '.join(column.name for column in command.columns if not column.shown)}"
        for path in COMMANDS_AND_VERBS
        if isinstance(command := loaded(path), KctlCommand) and command.columns
    ]
    approved("fields", "\n".join(lines) + "\n")
