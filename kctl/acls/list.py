"""`kctl acls list`."""

from __future__ import annotations

import click

from kctl.acls.asking import COLUMNS, Filter, Meant, described, meaning, row
from kctl.acls.bindings import Binding, principal_named
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.reach.session import Session


@click.command("list", cls=KctlCommand, columns=COLUMNS, watchable=True)
@meaning
@click.option("--principal", metavar="NAME", help="ACLs of this principal, whether they allow or deny.")
@click.option("--applying", is_flag=True, help="With a resource: include patterns that apply to it.")
@pass_session
def list_acls(session: Session, meant: Meant, principal: str | None, applying: bool) -> int:
    """List ACLs.

    Example: kctl acls list --topic orders --applying
    """
    found: dict[Binding, None] = {}
    for wanted in meant.filters():
        narrowed = wanted._replace(pattern="match") if applying and wanted.name else wanted
        if principal is not None:
            narrowed = narrowed._replace(principal=principal_named(principal))
        found |= dict.fromkeys(described(session, Filter(*narrowed)))
    return answer(session, COLUMNS, map(row, found))
