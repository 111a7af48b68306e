"""`kctl partitions throttle`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

import click

from kafkad.names import TopicPartition
from kctl.command.changes import Change
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError
from kctl.partitions.dynamic_settings import are_so, read_settings, throttle_settings, write_settings
from kctl.partitions.requests import active_moves
from kctl.partitions.throttle_settings import (
    DIRECTORY_RATE,
    Setting,
    Transfer,
    Values,
    left_over,
    lists,
    rates,
    united,
    way_back,
)
from kctl.reach.log_dirs import log_dirs
from kctl.reach.session import Session
from kctl.texts.output import Column, Row, counted, note
from kctl.texts.parsing import parse_rate
from kctl.texts.spelling import spelled

COLUMNS = (
    Column("kind", "broker or topic."),
    Column("owner", "Which of them.", header="NAME"),
    Column("setting", "The setting that throttles."),
    Column("value", "Its value: bytes a second at a broker, partition:broker at a topic."),
    Column("needed", "yes if a move under way takes part in it; otherwise it is left over."),
    Column("new", "With set and clear the value that it gets; none: it is removed.", machine=True),
)
_CHANGES = tuple(column._replace(machine=False) for column in COLUMNS)


class Throttles(NamedTuple):
    """All throttles that are set, those of them that no move needs, the moves, and what could not be read."""

    values: dict[Setting, str]
    left: dict[Setting, str]
    transfers: list[Transfer]
    errors: list[KctlError]


@click.command("throttle", cls=KctlCommand, columns=COLUMNS)
@click.argument("action", type=click.Choice(("show", "set", "clear")))
@click.argument("rate", required=False)
@pass_session
def throttle(session: Session, action: str, rate: str | None) -> int:
    """Show, set or clear the throttles of moves.

    set RATE throttles the moves under way, whoever started them, on the brokers and topics involved. clear removes all
    throttles from all brokers and topics that can be reached, including those set by Kafka's own tool.

    Example: kctl partitions throttle set 20MB/s
    """
    if (action == "set") != (rate is not None):
        hints = (
            "kctl partitions throttle set 20MB/s",
            "kctl partitions throttle show",
            "kctl partitions throttle clear",
        )
        raise KctlError("a rate is given with set, and only with set", exit_code=Exit.USAGE, hints=hints)
    wanted = None if rate is None else parse_rate(rate)
    found = throttles(session)
    if action == "show":
        return answer(session, COLUMNS, _rows(found, {}), found.errors)
    if wanted is not None:
        return _set(session, found, wanted)
    return _clear(session, found)


def throttles(session: Session) -> Throttles:
    """The throttles of all brokers and topics."""
    topics = [topic.name for topic in session.metadata()]
    values, errors = read_settings(session, throttle_settings(session.cluster.brokers, topics))
    transfers = [Transfer(where, each.origin, each.adding) for where, each in active_moves(session).items()]
    if any(setting.name == DIRECTORY_RATE and value is not None for setting, value in values.items()):
        transfers += _between_directories(session)
    is_set = {setting: value for setting, value in values.items() if value is not None}
    return Throttles(is_set, left_over(is_set, transfers), transfers, errors)


def _between_directories(session: Session) -> Iterator[Transfer]:
    for directory in log_dirs(session)[0]:
        for replica in directory.replicas:
            if replica.future:
                yield Transfer(TopicPartition(replica.topic, replica.partition), (), (), (replica.broker,))


def left_over_lines(session: Session) -> Iterator[str]:
    """Lines that report the throttles that no move needs."""
    left = throttles(session).left
    for setting, value in left.items():
        yield f"left-over throttle: {setting} = {value}"
    if left:
        yield f"       clear: {spelled(session.settings, 'partitions throttle clear')}"


def _rows(found: Throttles, new: Values) -> list[Row]:
    return [
        {
            "kind": setting.kind,
            "owner": setting.owner,
            "setting": setting.name,
            "value": found.values.get(setting),
            "needed": "yes" if setting not in found.left else "no",
            "new": new.get(setting),
        }
        for setting in sorted({*found.values, *new})
    ]


def _set(session: Session, found: Throttles, rate: int) -> int:
    if not found.transfers:
        hint = "kctl partitions apply PLAN.JSON --throttle RATE throttles moves as they begin"
        raise KctlError("no move is under way to throttle", exit_code=Exit.REFUSED, hints=(hint,))
    alive = {str(broker) for broker in session.cluster.brokers}
    new: dict[Setting, str | None] = {
        setting: value for setting, value in rates(found.transfers, rate).items() if setting.owner in alive
    }
    for setting, value in lists(found.transfers).items():
        new[setting] = united(found.values.get(setting), value)
    return _change(session, found, new, f"Throttle {counted(len(found.transfers), 'move')}?")


def _clear(session: Session, found: Throttles) -> int:
    if not found.values:
        note(session.settings, "no throttle is set")
        return answer(session, COLUMNS, [], found.errors)
    needed = len(found.values) - len(found.left)
    question = f"Remove {len(found.values)} settings"
    question += f", {needed} of which throttle moves under way?" if needed else "?"
    return _change(session, found, dict.fromkeys(found.values, None), question)


def _change(session: Session, found: Throttles, new: Mapping[Setting, str | None], question: str) -> int:
    change = Change(session, _CHANGES, _rows(found, new))
    if not change.confirmed(question):
        return Exit.DONE
    errors = write_settings(session, new)
    owners = {(setting.kind, setting.owner) for setting in new}
    is_changed = sum(error.did_nothing for error in errors) < len(owners)
    undo = spelled(session.settings, *way_back(found.values, new)) if is_changed else ""
    seen = partial(are_so, session, new)
    return change.done(errors=[*found.errors, *errors], verified="read back", seen=seen, undo=undo)
