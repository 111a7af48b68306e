"""`kctl brokers loggers`."""

from __future__ import annotations

import click

from kctl.command.chosen import chosen_brokers
from kctl.command.cluster_names import broker_ids
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.configs.change import change_settings
from kctl.configs.resources import Resource, described
from kctl.configs.values import DELETE, SET, Assignment
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.texts.output import Column

COLUMNS = (
    Column("broker", "The broker's id.", "number"),
    Column("logger", "The logger's name."),
    Column("level", "What it logs: TRACE, DEBUG, INFO, WARN, ERROR, FATAL."),
)


@click.command("loggers", cls=KctlCommand, columns=COLUMNS)
@click.argument("broker", type=int, shell_complete=broker_ids)
@click.argument("changes", nargs=-1, metavar="[LOGGER=LEVEL…]")
@pass_session
def loggers(session: Session, broker: int, changes: tuple[str, ...]) -> int:
    """List the loggers of a broker with their levels, or set some.

    LOGGER= without a level resets it to the level of the root logger. Levels last until the broker stops.

    Example: kctl brokers loggers 1 root=DEBUG
    """
    chosen_brokers(session, (broker,))
    resource = Resource("logger", str(broker))
    if changes:
        return change_settings(session, [resource], [_change(text) for text in changes])
    found, errors = described(session, [resource])
    rows = [
        {"broker": broker, "logger": entry.name, "level": entry.value}
        for entries in found.values()
        for entry in entries
    ]
    return answer(session, COLUMNS, rows, errors)


def _change(text: str) -> Assignment:
    name, equals, level = text.partition("=")
    if not name or not equals:
        raise KctlError(f'"{text}" is not LOGGER=LEVEL', exit_code=Exit.USAGE, hints=("as in root=DEBUG",))
    return Assignment(name, SET, level.upper()) if level else Assignment(name, DELETE, None)
