"""`kctl brokers log-dirs`."""

from __future__ import annotations

import click

from kctl.brokers.facts import ANSWERS, answer_state
from kctl.command.chosen import chosen_brokers
from kctl.command.cluster_names import broker_ids
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.reach.log_dirs import LogDir, log_dirs
from kctl.reach.session import Session
from kctl.texts.output import Column, Row, note

COLUMNS = (
    Column("broker", "The broker's id.", "number"),
    Column("path", "The directory."),
    Column("partitions", "Replicas in it.", "number"),
    Column("moving", "Replicas that are still being moved into it.", "number"),
    Column("size_bytes", "Bytes of the replicas.", "size", "BYTES"),
    Column("largest", "The largest replica.", wide=True),
    Column("largest_bytes", "Its bytes.", "size", wide=True),
    Column("free_bytes", "Room left on its disk.", "size", "FREE"),
    Column("total_bytes", "Size of its disk.", "size", "DISK"),
    Column("state", "ok, what the broker says is wrong with it, or why it says nothing, as in brokers list.", "state"),
)


@click.command("log-dirs", cls=KctlCommand, columns=COLUMNS, watchable=True)
@click.argument("brokers", nargs=-1, type=int, shell_complete=broker_ids, metavar="[BROKER…]")
@pass_session
def log_directories(session: Session, brokers: tuple[int, ...]) -> int:
    """List log directories with their used and free space.

    Example: kctl brokers log-dirs --sort -size_bytes
    """
    asked = chosen_brokers(session, brokers)
    directories, silent = log_dirs(session, asked)
    answered = {directory.broker for directory in directories}
    rows = [_row(directory) for directory in directories]
    rows += [
        {"broker": broker, "state": answer_state(silent[broker]) if broker in silent else ANSWERS}
        for broker in asked
        if broker not in answered
    ]
    if brokers:
        return answer(session, COLUMNS, rows, list(silent.values()))
    for error in silent.values():
        note(session.settings, error.with_code)
    return answer(session, COLUMNS, rows)


def _row(directory: LogDir) -> Row:
    largest = max(directory.replicas, key=lambda replica: replica.size, default=None)
    return {
        "broker": directory.broker,
        "path": directory.path,
        "partitions": sum(not replica.future for replica in directory.replicas),
        "moving": sum(replica.future for replica in directory.replicas),
        "size_bytes": sum(replica.size for replica in directory.replicas),
        "largest": f"{largest.topic}-{largest.partition}" if largest else None,
        "largest_bytes": largest.size if largest else None,
        "free_bytes": directory.free,
        "total_bytes": directory.total,
        "state": directory.error.code.lower().replace("_", "-") if directory.error else "ok",
    }
