"""`kctl cluster controller`."""

from __future__ import annotations

import click

from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.texts.output import Column

COLUMNS = (
    Column("id", "The controller's id.", "number"),
    Column("host", "Where clients reach it; not known where controllers are apart from brokers."),
    Column("port", "Its port.", "number"),
    Column("rack", "Its rack."),
)


@click.command("controller", cls=KctlCommand, columns=COLUMNS, watchable=True)
@pass_session
def controller(session: Session) -> int:
    """Print which broker is the controller.

    In a KRaft cluster this is the broker that forwards requests to the quorum; kctl cluster quorum shows its leader.

    Example: kctl cluster controller -o name
    """
    cluster = session.refresh()
    if cluster.controller_id < 0:
        raise KctlError(
            "the cluster has no controller at the moment", exit_code=Exit.UNREACHABLE, code="NOT_CONTROLLER"
        )
    broker = cluster.brokers.get(cluster.controller_id)
    row = {
        "id": cluster.controller_id,
        "host": broker.host if broker else None,
        "port": broker.port if broker else None,
        "rack": broker.rack if broker else None,
    }
    return answer(session, COLUMNS, [row])
