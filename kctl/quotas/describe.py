"""`kctl quotas describe`."""

from __future__ import annotations

import click

from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError
from kctl.quotas.entities import COLUMNS, Entity, applying, described, entity_of, entity_text
from kctl.reach.session import Session
from kctl.texts.output import note


@click.command("describe", cls=KctlCommand, columns=COLUMNS)
@click.argument("who", nargs=-1, required=True, metavar="user=NAME client=NAME | ip=ADDRESS")
@click.option("--resolve", is_flag=True, help="Show the quotas that apply to this user and client, including defaults.")
@pass_session
def describe(session: Session, who: tuple[str, ...], resolve: bool) -> int:
    """Show the quotas that are set for a user and client, or that apply.

    With --resolve, the most specific entry decides for each quota: user and client together, then the user, then the
    client, each before its default.

    Example: kctl quotas describe --resolve user=alice client=billing
    """
    entity = entity_of(who)
    quotas = described(session)
    if resolve:
        found = applying(quotas, _named(entity))
        if not found:
            note(session.settings, f"no quota applies to {entity_text(entity)}")
        return answer(session, COLUMNS, [quota.row() for quota in found])
    found = [quota for quota in quotas if quota.entity == entity]
    if not found:
        hints = ("--resolve says which of others apply",)
        raise KctlError(f"{entity_text(entity)} has no quota of its own", exit_code=Exit.NOT_FOUND, hints=hints)
    return answer(session, COLUMNS, [quota.row() for quota in found])


def _named(entity: Entity) -> dict[str, str]:
    named = {kind: name for kind, name in entity if name is not None}
    if len(named) < len(entity):
        raise KctlError("--resolve needs a name, not a default", exit_code=Exit.USAGE, hints=("kctl quotas list",))
    return named
