"""`kctl tokens create`."""

from __future__ import annotations

import click

from kctl.command.changes import Change
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit
from kctl.reach.session import Session
from kctl.texts.output import Column, note
from kctl.texts.parsing import parse_duration_ms
from kctl.texts.spelling import command, spelled
from kctl.tokens.asking import COLUMNS, created, described

_PLAN = (
    Column("owner", "Whom it speaks for."),
    Column("renewers", "Who may renew it besides its owner; repeatable.", "list"),
    Column("max_lifetime_ms", "How long it may live at the most.", "duration", "LIFETIME"),
)


@click.command("create", cls=KctlCommand, columns=COLUMNS)
@click.option("--owner", metavar="PRINCIPAL", help="Owner of the token.  [default: yourself]")
@click.option("--renewer", multiple=True, metavar="PRINCIPAL", help="Who may renew it besides its owner; repeatable.")
@click.option("--max-lifetime", metavar="TIME", help="Maximum lifetime.  [default: what the brokers allow]")
@pass_session
def create(session: Session, owner: str | None, renewer: tuple[str, ...], max_lifetime: str | None) -> int:
    """Create a delegation token.

    To log in with the token, use its id and secret, which -o wide and json show, as user name and password with SCRAM.

    Example: kctl tokens create --renewer User:scheduler --max-lifetime 7d
    """
    lifetime = None if max_lifetime is None else parse_duration_ms(max_lifetime)
    plan = {"owner": owner or "whoever asks", "renewers": list(renewer), "max_lifetime_ms": lifetime}
    change = Change(session, _PLAN, [plan])
    if not change.confirmed("Create this token?", only_adds=True):
        return Exit.DONE
    made = created(session, owner, renewer, lifetime)
    code = answer(session, COLUMNS, [made.row()])  # the secret first: whoever sees no token of others gets it only here
    undo = spelled(session.settings, command("tokens expire", made.token_id))
    if owner is None:
        note(session.settings, f"undo: {undo}")
        session.wait_until(lambda: any(token.token_id == made.token_id for token in described(session)))
    else:  # whom a broker may hide it from
        note(session.settings, f"undo, as its owner or a renewer: {undo}")
    return code
