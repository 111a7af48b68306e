"""`kctl configs diff`."""

from __future__ import annotations

from collections.abc import Mapping

import click

from kafkad.properties import is_properties, java_text, parse_properties
from kctl.command.paths import files
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.configs import naming
from kctl.configs.resources import Entry, Resource, described, is_secret, parse_resource
from kctl.configs.values import in_units_of_brokers, values_in_yaml, with_meaning
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.texts.documents import read_yaml
from kctl.texts.output import Column, Row, note
from kctl.texts.text_files import content_of, decoded

COLUMNS = (
    Column("name", "The setting's name."),
    Column("left", "Its value in the first resource."),
    Column("right", "Its value in the second one, or in the file."),
)


@click.command("diff", cls=KctlCommand, columns=COLUMNS)
@click.argument("resources", nargs=-1, required=True, metavar="RESOURCE [RESOURCE]", shell_complete=naming.resources)
@click.option(
    "-f",
    "--file",
    shell_complete=files,
    metavar="FILE",
    help="Compare with this file of NAME=VALUE lines or YAML.",
)
@pass_session
def diff(session: Session, resources: tuple[str, ...], file: str | None) -> int:
    """Compare the settings of two resources, or of one with a file.

    With a file, only the settings that it names are compared. The exit code is 7 if anything differs. Secrets cannot be
    compared, and settings that differ by nature between brokers (id, listeners, directories) are left out.

    Example: kctl configs diff broker/1 broker/2
    """
    asked = [parse_resource(text) for text in resources]
    if len(asked) != (1 if file else 2):
        raise KctlError("name two resources, or one and a file with -f", exit_code=Exit.USAGE)
    found, errors = described(session, asked)
    for error in errors:
        raise error
    left = _values(found[asked[0]])
    if file:
        known = {entry.name: entry for entry in found[asked[0]]}
        read = read_settings(file)
        given = {name: value for name, value in read.items() if not is_secret(name, known)}
        if secrets := sorted(read.keys() - given.keys()):
            note(session.settings, f"not compared, for they may be secret: {', '.join(secrets)}")
        rows = differences({name: left.get(name) for name in given}, given)
    else:
        rows = differences(*(_shared(asked, _values(found[resource])) for resource in asked))
    code = answer(session, _titled(asked, file), rows)
    if not rows:
        note(session.settings, "no difference")
    return Exit.FINDINGS if rows else code


_OF_ONE_BROKER = {
    "broker.id",
    "node.id",
    "broker.rack",
    "listeners",
    "advertised.listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
}


def _values(entries: list[Entry]) -> dict[str, str | None]:
    return {entry.name: entry.value for entry in entries if not entry.sensitive}


def _shared(asked: list[Resource], values: dict[str, str | None]) -> dict[str, str | None]:
    if any(resource.kind != "broker" for resource in asked):
        return values
    return {name: value for name, value in values.items() if name not in _OF_ONE_BROKER}


def _titled(asked: list[Resource], file: str | None) -> tuple[Column, ...]:
    titles = (None, str(asked[0]), file or str(asked[-1]))
    return tuple(
        column if title is None else column._replace(header=title.upper())
        for column, title in zip(COLUMNS, titles, strict=True)
    )


def differences(left: Mapping[str, str | None], right: Mapping[str, str | None]) -> list[Row]:
    """Settings whose values differ, by name."""
    return [
        {"name": name, "left": with_meaning(name, left.get(name)), "right": with_meaning(name, right.get(name))}
        for name in sorted({*left, *right})
        if left.get(name) != right.get(name)
    ]


def read_settings(path: str) -> dict[str, str]:
    """The settings of a file with lines NAME=VALUE, as in server.properties, or with a YAML mapping."""
    content = content_of(path)
    text = java_text(content)
    if is_properties(path, text):
        return {each.name: in_units_of_brokers(each.name, each.value) for each in parse_properties(text)}
    try:
        document = read_yaml(decoded(content, path))
    except ValueError as error:
        what = f"{path} is neither NAME=VALUE lines nor YAML: {error}"
        raise KctlError(what, exit_code=Exit.USAGE) from None
    if not isinstance(document, dict):
        hints = ("write a line for each, NAME=VALUE or NAME: VALUE",)
        raise KctlError(f"{path} is not a mapping of setting names to values", exit_code=Exit.USAGE, hints=hints)
    return values_in_yaml(document, path)
