"""Command lines for a person to paste, as in `undo: kctl -c prod topics delete orders`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kctl.errors import KctlError
from kctl.settings import Settings

_ADDRESS = "bootstrap.servers"
_QUOTED = r"""(?<!\w)(?:'[^']*'|"[^"]*")"""
ON_A_CLUSTER = (
    "topics", "groups", "partitions", "brokers", "cluster", "configs", "acls", "users", "quotas", "tokens", "txns",
    "produce", "consume", "copy", "perf", "doctor", "raw", "contexts test",
)  # fmt: skip
"""The commands that reach a cluster, and may be told which."""
_IN_PROSE = re.compile(rf"{_QUOTED}|\bkctl (?P<command>{'|'.join(ON_A_CLUSTER)})\b(?!(?: [a-z-]+)? --help)")
"""Something in quotes, or such a command of which not just the help is meant."""


def quote(text: str) -> str:
    """A word of a command line, whatever is in it: what no terminal shows is written as bash, zsh and ksh read it."""
    from shlex import quote as quoted  # no start shall pay for it

    return quoted(text) if text.isprintable() else f"$'{''.join(map(_shown, text))}'"


def _shown(sign: str) -> str:
    if sign.isprintable() and sign not in "\\'":
        return sign
    return "".join(f"\\x{byte:02x}" for byte in sign.encode("utf-8", "surrogateescape"))


def command(verb: str, *names: str, options: str = "") -> str:
    """One of kctl's commands, for these names: they come last where one of them would be taken for an option."""
    quoted = map(quote, names)
    is_odd = any(name.startswith("-") for name in names)
    return " ".join(filter(None, [verb, options, "--", *quoted] if is_odd else [verb, *quoted, options]))


def spelled(settings: Settings, *commands: str) -> str:
    """These commands of kctl on the same cluster as this one, whatever the current context is."""
    kctl = _kctl(settings)
    return "; ".join(f"{kctl} {command}" for command in commands)


def on_this_cluster(settings: Settings, text: str) -> str:
    """A hint with its commands for the same cluster as this one; help is the same for all, and what is quoted is a
    name."""
    kctl = _kctl(settings)
    return _IN_PROSE.sub(lambda found: f"{kctl} {found['command']}" if found["command"] else found[0], text)


def hints_of(settings: Settings, error: KctlError) -> tuple[str, ...]:
    """The hints with their commands for the cluster of these settings, unless they say already which one they are
    for."""
    return error.hints if error.spelled else tuple(on_this_cluster(settings, hint) for hint in error.hints)


def spelled_for(settings: Settings, error: KctlError) -> KctlError:
    """The error, whose hints are for the cluster of these settings, whoever prints them."""
    error.hints, error.spelled = hints_of(settings, error), True
    return error


@contextmanager
def hints_for(settings: Settings) -> Iterator[None]:
    """Likewise each error that is raised in it."""
    try:
        yield
    except KctlError as error:
        spelled_for(settings, error)
        raise


def _kctl(settings: Settings) -> str:
    words = ["kctl"]
    words += ["-c", quote(settings.context)] if settings.context else []
    words += ["-b", quote(settings.bootstrap)] if settings.bootstrap else []
    words += ["--command-config", quote(settings.command_config)] if settings.command_config else []
    words += ["-X", quote(f"{_ADDRESS}={settings.extra[_ADDRESS]}")] if _ADDRESS in settings.extra else []
    return " ".join(words)
