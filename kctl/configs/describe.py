"""`kctl configs describe`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.configs import naming
from kctl.configs.resources import Described, described, parse_resource
from kctl.configs.values import misspelt, with_meaning
from kctl.errors import KctlError
from kctl.reach.session import Session
from kctl.texts.output import Column, Document, Row, Writer

COLUMNS = (
    Column("resource", "What has the setting."),
    Column("name", "The setting's name."),
    Column("value", "Its value in the unit that brokers count in; hidden if it is a secret.", machine=True),
    Column("shown", "Its value, and what that is in units that people use.", header="VALUE", shown=True),
    Column("source", "Where it is set: topic, broker, all brokers, file, group, default, …"),
    Column("default", "Whether nobody has set it.", machine=True),
    Column("sensitive", "Whether its value is a secret.", machine=True),
    Column("read_only", "Whether it changes only with a restart.", wide=True),
    Column("synonyms", "Every place that sets it; the first one counts.", "list", wide=True),
    Column("doc", "What it does, as the broker says it.", machine=True),
)


@click.command("describe", cls=KctlCommand, columns=COLUMNS)
@click.argument("resources", nargs=-1, required=True, metavar="RESOURCE…", shell_complete=naming.resources)
@click.option("--all", "everything", is_flag=True, help="Include settings that are not set.")
@click.option(
    "--name", "names", multiple=True, metavar="SETTING", help="Only this setting, set or not, with an explanation."
)
@pass_session
def describe(session: Session, resources: tuple[str, ...], everything: bool, names: tuple[str, ...]) -> int:
    """Show settings with their source.

    Resources are topic/NAME, broker/ID, brokers (the cluster-wide defaults), logger/ID (log levels of a broker),
    group/NAME, client-metrics/NAME, and the quotas of user/NAME, client/NAME and ip/ADDRESS.

    Example: kctl configs describe topic/orders broker/1
    """
    asked = [parse_resource(text) for text in resources]
    programs = not session.settings.is_text
    found, errors = described(session, asked, synonyms=True, documentation=programs or bool(names))
    for name in names:
        known = [entry.name for entries in found.values() for entry in entries]
        if wrong := misspelt(name, known, "setting" if {each.has for each in asked} != {"logger"} else "logger"):
            errors.append(wrong)
    rows = list(_rows(found, everything, names))
    text = None if len(asked) > 1 else lambda: _text(session, rows, found, errors)
    return answer(session, COLUMNS, rows, errors, text=text)


def _rows(found: Described, everything: bool, names: Sequence[str]) -> Iterator[Row]:
    for resource, entries in found.items():
        for entry in entries:
            if entry.name in names if names else everything or not entry.is_default:
                yield {
                    "resource": str(resource),
                    "name": entry.name,
                    "value": entry.shown,
                    "shown": with_meaning(entry.name, entry.shown),
                    "source": entry.source,
                    "default": entry.is_default,
                    "sensitive": entry.sensitive,
                    "read_only": entry.read_only,
                    "synonyms": [f"{source}: {name}={value}" for source, name, value in entry.synonyms],
                    "doc": entry.doc,
                }


def _text(session: Session, rows: Sequence[Row], found: Described, errors: Sequence[KctlError]) -> Iterator[str]:
    """The text for a single resource: its name need not stand in every line."""
    columns = [column for column in COLUMNS if column.name != "resource"]
    if rows:
        yield from Writer(session.settings, columns, Document(session.settings.command)).table(rows)
    hidden = sum(map(len, found.values())) - len(rows)
    documented = [row for row in rows if row["doc"]]
    if documented:  # asked for only of settings that are named
        yield from (f"{row['name']}: {row['doc']}" for row in documented)
    elif hidden and not session.settings.no_headers:
        yield f"{hidden} defaults are not shown: --all shows them" if rows else f"all {hidden} are defaults: --all"
    elif not rows and not errors:
        yield "nothing is set"
