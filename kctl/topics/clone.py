"""`kctl topics clone`."""

from __future__ import annotations

import click

from kctl.command import KctlCommand
from kctl.session import Session, pass_session
from kctl.topics.create import COLUMNS, create_topics, model_of
from kctl.topics.wanted import check_name, parse_configs


@click.command("clone", cls=KctlCommand, columns=COLUMNS)
@click.argument("topic", metavar="TOPIC")
@click.argument("new", metavar="NEW")
@click.option("-p", "--partitions", type=click.IntRange(min=1), metavar="N", help="How many, if not as many.")
@click.option("-r", "--replication", type=click.IntRange(min=1), metavar="N", help="Replicas, if not as many.")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="A setting, if not as that topic's.")
@pass_session
def clone(
    session: Session,
    topic: str,
    new: str,
    partitions: int | None,
    replication: int | None,
    configs: tuple[str, ...],
) -> int:
    """Create a topic like another one.

    It has the partitions, replication and settings of that topic, but not its records: kctl copy copies those.

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
    return create_topics(session, [wanted])
