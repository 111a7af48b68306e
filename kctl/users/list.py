"""`kctl users list`."""

from __future__ import annotations

import click

from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.reach.session import Session
from kctl.users.credentials import COLUMNS, described


@click.command("list", cls=KctlCommand, columns=COLUMNS, watchable=True)
@click.argument("users", nargs=-1, metavar="[USER…]")
@pass_session
def list_users(session: Session, users: tuple[str, ...]) -> int:
    """List users with SCRAM credentials.

    Example: kctl users list
    """
    found, errors = described(session, users)
    return answer(session, COLUMNS, (credential.row() for credential in found), errors)
