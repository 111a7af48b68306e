"""`kctl tokens list`."""

from __future__ import annotations

import click

from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.reach.session import Session
from kctl.tokens.asking import COLUMNS, described


@click.command("list", cls=KctlCommand, columns=COLUMNS, watchable=True)
@click.option("--owner", multiple=True, metavar="PRINCIPAL", help="Only tokens of this owner.")
@pass_session
def list_tokens(session: Session, owner: tuple[str, ...]) -> int:
    """List delegation tokens.

    Lists the tokens that you are allowed to see; -o wide and json include their secrets.

    Example: kctl tokens list --owner User:alice
    """
    return answer(session, COLUMNS, [token.row() for token in described(session, owner)])
