"""`kctl partitions reassign` and `move-dir`: moves that are named one by one."""

from __future__ import annotations

from collections.abc import Sequence

import click

from kafkad.names import TopicPartition
from kctl.command.cluster_names import broker_ids, topic_names
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError
from kctl.partitions.apply import COLUMNS, Options, carry_out, execution_options
from kctl.partitions.partition_names import named
from kctl.partitions.reassignment_json import Place, Plan, parse_assignment
from kctl.partitions.snapshot import take
from kctl.reach.log_dirs import log_dirs
from kctl.reach.session import Session
from kctl.texts.text_files import with_time


@click.command("reassign", cls=KctlCommand, columns=COLUMNS)
@click.argument("assignments", nargs=-1, required=True, metavar="TOPIC:PARTITION=BROKER,BROKER…")
@execution_options
@pass_session
def reassign(session: Session, assignments: Sequence[str], options: Options) -> int:
    """Reassign single partitions to the replicas you name.

    Runs like a plan, which is also written to a file in the current directory so that another run can resume it.

    Example: kctl partitions reassign orders:0=1,2,3 orders:1=2,3,1 --throttle 50MB/s
    """
    places: dict[TopicPartition, Place] = {}
    for word in assignments:
        partition, place = parse_assignment(word)
        if partition in places:
            raise KctlError(f"{partition} is named twice", exit_code=Exit.USAGE)
        places[partition] = place
    return carry_out(session, f"{with_time('reassign')}.json", Plan(places), options, save=True)


@click.command("move-dir", cls=KctlCommand, columns=COLUMNS)
@click.argument("what", nargs=-1, required=True, metavar="TOPIC[:PARTITION]…", shell_complete=topic_names)
@click.option("--broker", type=int, required=True, metavar="BROKER", shell_complete=broker_ids, help="The broker.")
@click.option("--dir", "path", required=True, metavar="PATH", help="One of its log directories.")
@execution_options
@pass_session
def move_dir(session: Session, what: Sequence[str], broker: int, path: str, options: Options) -> int:
    """Move replicas to another log directory of their broker.

    Example: kctl partitions move-dir orders:0 --broker 1 --dir /data/disk2
    """
    directories, silent = log_dirs(session, [broker], {})
    if silent:
        raise silent[broker]
    known = [directory.path for directory in directories]
    if path not in known:
        hints = (f"there are: {', '.join(known)}",)
        raise KctlError(f"broker {broker} has no log directory {path}", exit_code=Exit.NOT_FOUND, hints=hints)
    chosen, errors = named(what, take(session).partitions)
    errors += [
        KctlError(f"partition {each.name} has no replica on broker {broker}", exit_code=Exit.NOT_FOUND)
        for each in chosen
        if broker not in each.replicas
    ]
    places = {e.name: Place(e.replicas).with_directory(broker, path) for e in chosen if broker in e.replicas}
    if not places:
        return answer(session, COLUMNS, [], errors)
    options = options._replace(elect=False)
    return carry_out(session, f"{with_time('move-dir')}.json", Plan(places), options, save=True, unable=errors)
