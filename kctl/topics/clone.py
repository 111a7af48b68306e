"""`kctl topics clone`."""

from __future__ import annotations

import click

from kctl.command.cluster_names import topic_names
from kctl.command.verb import KctlCommand, pass_session
from kctl.reach.session import Session
from kctl.topics.create import COLUMNS, create_topics, model_of
from kctl.topics.wanted import check_name, parse_configs


@click.command("clone", cls=KctlCommand, columns=COLUMNS)
@click.argument("topic", metavar="TOPIC", shell_complete=topic_names)
@click.argument("new", metavar="NEW")
@click.option("-p", "--partitions", type=click.IntRange(min=1), metavar="N", help="How many, if not as many.")
@click.option("-r", "--replication", type=click.IntRange(min=1), metavar="N", help="Replicas, if not as many.")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="A setting, if not as that topic's.")
@click.option("--data", is_flag=True, help="Copy the records, too: those that there are now.")
@pass_session
def clone(
    session: Session,
    topic: str,
    new: str,
    partitions: int | None,
    replication: int | None,
    configs: tuple[str, ...],
    data: bool,
) -> int:
    """Create a topic like another one.

    It has the partitions, replication and settings of that topic, and with --data its records: each in the partition
    of the same number, unless -p gives it others. kctl copy can choose which records.

    Example: kctl topics clone orders orders-test
    """
    check_name(new)
    model = model_of(session, topic)
    wanted = model._replace(
        name=new,
        partitions=partitions or model.partitions,
        replication=replication or model.replication,
        configs={**model.configs, **parse_configs(configs)},
    )
    context = click.get_current_context()

    def fill() -> int:
        from kctl.records.copy import copy

        code: int = context.invoke(copy, source=topic, target=new, keep_partition=not partitions)
        return code

    return create_topics(session, [wanted], then=fill if data else None)
