"""`kctl topics clone`."""

from __future__ import annotations

import click

from kctl.command.cluster_names import topic_names
from kctl.command.verb import KctlCommand, pass_session
from kctl.reach.session import Session
from kctl.texts.parsing import LARGEST_INT16, LARGEST_INT32
from kctl.topics.create import COLUMNS, create_topics, model_of
from kctl.topics.wanted import check_name, parse_configs


@click.command("clone", cls=KctlCommand, columns=COLUMNS)
@click.argument("topic", metavar="TOPIC", shell_complete=topic_names)
@click.argument("new", metavar="NEW")
@click.option(
    "-p", "--partitions", type=click.IntRange(1, LARGEST_INT32), metavar="N", help="Number of partitions, if different."
)
@click.option(
    "-r", "--replication", type=click.IntRange(1, LARGEST_INT16), metavar="N", help="Replication factor, if different."
)
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="A setting, if different; repeatable.")
@click.option("--data", is_flag=True, help="Also copy the committed records that exist now.")
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

    Copies the partitions, replication and settings, and with --data the committed records, each to the partition of the
    same number unless -p is given. Use kctl copy to choose which records.

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

    hint = "give the clone another name; kctl copy puts records into a topic that is there"
    return create_topics(session, [wanted], exists_hint=hint, then=fill if data else None)
