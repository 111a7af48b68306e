"""Real shells, with the script that `kctl completion` prints for each: what stands on their line after a tab."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl, until

Offers = Callable[[str], list[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """One in which kctl is a command, and the home directory is empty."""
    command = tmp_path / "bin" / "kctl"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kctl "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": os.getcwd(), "HOME": str(tmp_path), "TERM": "dumb"}


def installed(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


@pytest.fixture
def bash(environment: dict[str, str]) -> Offers:
    """The completions that bash would offer at the end of a line."""

    def offered(line: str) -> list[str]:
        script = f"""
            eval "$(kctl completion bash)"
            COMP_LINE={line!r} COMP_POINT={len(line)}
            compopt() {{ [ "$2" != default ] || COMPREPLY+=("a file"); }}
            _kctl_completion kctl
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        command = [installed("bash"), "--norc", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        assert done.stderr == ""
        return done.stdout.splitlines()

    return offered


@pytest.fixture
def fish(environment: dict[str, str], tmp_path: Path) -> Offers:
    """The completions that fish would offer, each with a tab and its description where it has one."""
    script = 'kctl completion fish | source; cd $HOME; complete -C "$argv"'

    def offered(line: str) -> list[str]:
        command = [installed("fish"), "--no-config", "-c", script, line]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        assert done.stderr == ""
        return done.stdout.splitlines()

    return offered


class Zsh:
    """An interactive one, which needs a terminal. `^X` has it write down its line and begin anew."""

    def __init__(self, environment: dict[str, str], directory: Path) -> None:
        self._written = directory / "line"
        (directory / ".zshrc").write_text(
            f"""
            PATH={environment["PATH"]}
            cd "$HOME"
            autoload -U compinit && compinit -D -u
            eval "$(kctl completion zsh)"
            write-down() {{ print -r -- "$BUFFER" > new && mv new line; BUFFER= }}
            zle -N write-down && bindkey '^X' write-down
            """
        )
        shell = installed("zsh")
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.execve(shell, [shell, "--no-globalrcs", "-i"], environment | {"ZDOTDIR": str(directory)})
        self.shown = bytearray()
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            while part := os.read(self._terminal, 65536):
                self.shown += part
        except OSError:  # how Linux tells that nobody writes any more
            pass

    def __call__(self, line: str) -> str:
        """The line after a tab at its end."""
        self._written.unlink(missing_ok=True)
        os.write(self._terminal, f"{line}\t\x18".encode())
        until(self._written.exists, f"zsh has completed {line!r}: {self.shown.decode()}")
        return self._written.read_text().removesuffix("\n")

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._terminal)


@pytest.fixture
def zsh(environment: dict[str, str], tmp_path: Path) -> Iterator[Zsh]:
    shell = Zsh(environment, tmp_path)
    yield shell
    shell.close()


@pytest.fixture
def contexts(kctl: Kctl) -> None:
    for name in ("prod", "prod:eu", "dev"):
        assert kctl("contexts", "set", name, "bootstrap=a").code == 0


def test_bash_completes_commands_and_options(bash: Offers) -> None:
    assert bash("kctl cont") == ["contexts"]
    assert bash("kctl contexts us") == ["use"]
    assert bash("kctl contexts list --no-h") == ["--no-headers"]
    assert bash("kctl -b localhost:9092 contexts us") == ["use"]
    assert bash("kctl raw ApiV") == ["ApiVersions"]
    assert bash("kctl nonsense x") == [""]
    assert bash("kctl partitions apply p") == ["a file"]


def test_bash_completes_contexts(bash: Offers, contexts: None) -> None:
    assert bash("kctl contexts use p") == ["prod", "prod:eu"]
    assert bash("kctl contexts use prod:e") == ["eu"], "bash has gone on after the colon"
    assert bash("kctl -c pro") == ["prod", "prod:eu"]
    assert bash("kctl --context=pro") == ["prod", "prod:eu"]
    assert bash("kctl contexts set prod cert") == ["certificate="]


def test_bash_gets_names_that_are_shell_code_in_quotes(bash: Offers, kctl: Kctl) -> None:
    for name in ("x;touch PWNED #", "x$(touch PWNED)", "xy"):
        assert kctl("contexts", "set", name, "bootstrap=a").code == 0
    assert sorted(bash("kctl contexts use x")) == ["x\\$\\(touch\\ PWNED\\)", "x\\;touch\\ PWNED\\ \\#", "xy"]
    for quote in ("'", '"'):
        assert bash(f"kctl contexts use {quote}x") == ["xy"]


def test_bash_completes_topics(bash: Offers, broker: KafkadProcess, on_broker: Kctl) -> None:
    on_broker("topics", "create", "shell.a", "shell.b", "-p", 1, "-y")
    line = f"kctl -b {broker.bootstrap} topics list shel"
    until(lambda: bash(line) == ["shell.a", "shell.b"], "bash offers the topics of the broker")


def test_fish_completes_commands_and_options(fish: Offers) -> None:
    assert fish("kctl grou") == ["groups\tShow, reset, rebalance and delete consumer groups."], "the whole sentence"
    assert fish("kctl contexts list --no-h") == ["--no-headers\tLeave out the header of tables and csv."]
    assert fish("kctl raw ApiV") == ["ApiVersions"]
    assert fish("kctl nonsense x") == []


def test_fish_completes_contexts_and_files(fish: Offers, contexts: None, tmp_path: Path) -> None:
    (tmp_path / "plan.json").touch()
    assert fish("kctl contexts use p") == ["prod", "prod:eu"]
    assert fish("kctl contexts use prod:e") == ["prod:eu"]
    assert fish('kctl contexts use "prod:') == ["prod:eu"]
    assert fish("kctl --context=pro") == ["--context=prod", "--context=prod:eu"]
    assert fish("kctl partitions apply pl") == ["plan.json"]
    assert fish("kctl --command-config=pl") == ["--command-config=plan.json"]
    assert fish("kctl check-log bi") == ["bin/\tDirectory"]


@pytest.mark.slow
def test_zsh_puts_names_that_are_shell_code_in_quotes(zsh: Zsh, kctl: Kctl) -> None:
    assert kctl("contexts", "set", "x;touch PWNED", "bootstrap=a").code == 0
    assert zsh("kctl contexts use x") == "kctl contexts use x\\;touch\\ PWNED "


@pytest.mark.slow
def test_zsh_completes(zsh: Zsh, contexts: None, tmp_path: Path) -> None:
    (tmp_path / "plan.json").touch()
    assert zsh("kctl cont") == "kctl contexts "
    assert zsh("kctl contexts list --no-h") == "kctl contexts list --no-headers "
    assert zsh("kctl nonsense x") == "kctl nonsense x"
    assert zsh("kctl contexts use p") == "kctl contexts use prod", "two begin so"
    assert zsh("kctl contexts use prod:e") == "kctl contexts use prod:eu "
    assert zsh("kctl --context=d") == "kctl --context=dev "
    assert zsh("kctl contexts set prod cert") == "kctl contexts set prod certificate=", "a value follows"
    assert zsh("kctl partitions apply pl") == "kctl partitions apply plan.json "
    assert zsh("kctl check-log bi") == "kctl check-log bin/"
    assert zsh("kctl contexts ") == "kctl contexts "
    assert b"use     -- Make a context the current one." in zsh.shown
