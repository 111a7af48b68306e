"""Generates the man pages from the texts of --help and etc/kafkad.yaml: `python -m deploy.man DIRECTORY`."""

from __future__ import annotations

import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from deploy.roff import bold, heading, items, paragraphs, running
from kafkad import __version__
from kafkad.__main__ import parser
from kafkad.config import Setting
from kafkad.config.config import dynamic_mode
from kafkad.config.setting import READ_ONLY
from kafkad.config.tables import BROKER_SECTIONS
from kafkad.config.values import text_of
from kafkad.exit_status import MEANINGS
from kctl.cli import root
from kctl.command.noun import LazyGroup
from kctl.command.options import CommonOption, options
from kctl.reference import EXIT_CODES, INTRODUCTION, OTHER_CODES

_DAEMON, _FILES, _COMMANDS = 8, 5, 1
_FOR_ADMINISTRATORS, _ON_FILES, _FOR_USERS = "Administration", "File formats", "Commands"


def pages() -> dict[str, str]:
    """The pages' texts by file name."""
    made = {"kafkad.8": _daemon(parser()), "kafkad.yaml.5": _settings(), "kctl.1": _kctl()}
    context = _context(root, None)
    for name in root.list_commands(context):
        made[f"kctl-{name}.1"] = _command_page(name, context)
    return {name: "\n".join(lines) + "\n" for name, lines in made.items()}


# kafkad


def _daemon(options: ArgumentParser) -> Iterator[str]:
    yield from heading("kafkad", _DAEMON, __version__, _FOR_ADMINISTRATORS)
    yield from (".SH NAME", "kafkad \\- a Kafka broker")
    usage = options.format_usage().removeprefix("usage: kafkad")
    yield from (".SH SYNOPSIS", f"{bold('kafkad')} {running(usage)}")
    yield from (".SH DESCRIPTION", *paragraphs(options.description or ""))
    yield ".SH OPTIONS"
    for action in (each for each in options._actions if each.help != SUPPRESS):
        names = ", ".join(action.option_strings)
        yield from items([(f"{names} {action.metavar}" if action.metavar else names, f"{action.help}.")])
    yield ".SH EXIT STATUS"
    yield from items((str(code), f"{meaning}.") for code, meaning in MEANINGS.items())
    yield from _see_also("kafkad.yaml(5)", "kctl(1)")


# kafkad.yaml


def _settings() -> Iterator[str]:
    yield from heading("kafkad.yaml", _FILES, __version__, _ON_FILES)
    yield from (".SH NAME", "kafkad.yaml \\- settings of kafkad")
    yield ".SH DESCRIPTION"
    yield from paragraphs(
        "A line for each setting, as `name: value`. Names and meanings are Kafka's; names that start with `kafkad.` "
        "are kafkad's own. Nested YAML (`log: {segment: {bytes: 1}}`) means the same. Settings that are not here are "
        "of what kafkad does not have, and are refused when they are set. `kafkad --config FILE --check` says what is "
        "wrong with a file, and on which line."
    )
    for title, section in BROKER_SECTIONS.items():
        shown = [setting for setting in section if not setting.refused]
        if shown:
            yield f".SH {running(title.upper())}"
            yield from items((setting.name, _of_setting(setting)) for setting in shown)
    yield from _see_also("kafkad(8)")


def _of_setting(setting: Setting) -> str:
    default = text_of(setting.type, setting.default) or "none"
    dynamic = "" if dynamic_mode(setting.name) == READ_ONLY else " It can be changed while kafkad runs."
    return f"{setting.documentation} Default: {default}.{dynamic}"


# kctl


def _kctl() -> Iterator[str]:
    context = _context(root, None)
    yield from heading("kctl", _COMMANDS, __version__, _FOR_USERS)
    yield from (".SH NAME", "kctl \\- operate kafkad, or any other Kafka")
    yield from (".SH SYNOPSIS", f"{bold('kctl')} [OPTIONS] COMMAND [ARGS]...")
    yield from (".SH DESCRIPTION", *paragraphs(root.help or "", INTRODUCTION))
    yield from (".SH COMMANDS", *items((f"kctl-{name}(1)", text) for name, (_, text) in root.lazy.items()))
    yield from (".SH OPTIONS OF EVERY COMMAND", *_options(options(), context))
    yield from (".SH EXIT STATUS", *items((str(int(code)), f"{meaning}.") for code, meaning in EXIT_CODES.items()))
    yield from (".PP", *paragraphs(OTHER_CODES))
    yield from _see_also("kafkad(8)")


def _command_page(name: str, above: click.Context) -> Iterator[str]:
    command = root.get_command(above, name)
    assert command is not None  # it is in the root's own table
    yield from heading(f"kctl-{name}", _COMMANDS, __version__, _FOR_USERS)
    summary = root.lazy[name][1].removesuffix(".")
    yield from (".SH NAME", f"kctl\\-{running(name)} \\- {running(summary[0].lower() + summary[1:])}")
    context = _context(command, above)
    if isinstance(command, LazyGroup):
        yield from (".SH DESCRIPTION", *paragraphs(command.help or ""))
        yield ".SH COMMANDS"
        yield from _subcommands(command, context)
    else:
        yield from (".SH SYNOPSIS", _usage(command, context))
        yield from (".SH DESCRIPTION", *paragraphs(command.help or ""))
        yield from (".SH OPTIONS", *_own_options(command, context))
    yield from _see_also("kctl(1)", before="Options that all commands have are in")


def _subcommands(group: LazyGroup, above: click.Context) -> Iterator[str]:
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        assert command is not None
        context = _context(command, above)
        if isinstance(command, LazyGroup):
            yield from _subcommands(command, context)
        else:
            yield from (f'.SS "{running(context.command_path)}"', _usage(command, context))
            yield from (".PP", *paragraphs(command.help or ""), *_own_options(command, context))


def _context(command: click.Command, above: click.Context | None) -> click.Context:
    return click.Context(command, info_name=command.name if above else "kctl", parent=above, **root.context_settings)


def _usage(command: click.Command, context: click.Context) -> str:
    return f"{bold(context.command_path)} {running(' '.join(command.collect_usage_pieces(context)))}"


def _own_options(command: click.Command, context: click.Context) -> Iterator[str]:
    own = [p for p in command.get_params(context) if isinstance(p, click.Option) and not isinstance(p, CommonOption)]
    yield from _options(own, context)


def _options(parameters: Sequence[click.Parameter], context: click.Context) -> Iterator[str]:
    yield from items(record for parameter in parameters if (record := parameter.get_help_record(context)))


def _see_also(*others: str, before: str = "") -> Iterator[str]:
    yield from (".SH SEE ALSO", " ".join([before, ", ".join(map(bold, others))]).strip())


def write(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (directory / name).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
