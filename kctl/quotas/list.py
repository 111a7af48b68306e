"""`kctl quotas list`."""

from __future__ import annotations

import click

from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.quotas.entities import COLUMNS, described, entity_of
from kctl.reach.session import Session


@click.command("list", cls=KctlCommand, columns=COLUMNS, watchable=True)
@click.argument("who", nargs=-1, metavar="[user=NAME client=NAME ip=ADDRESS]")
@pass_session
def list_quotas(session: Session, who: tuple[str, ...]) -> int:
    """List quotas of users, clients and addresses.

    Example: kctl quotas list user=alice
    """
    wanted = set(entity_of(who))
    rows = [quota.row() for quota in described(session) if wanted <= set(quota.entity)]
    return answer(session, COLUMNS, rows)
