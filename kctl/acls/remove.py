"""`kctl acls remove`."""

from __future__ import annotations

import click

from kctl.acls.asking import COLUMNS, Filter, Meant, acl_failure, described, in_force, meaning, row
from kctl.acls.bindings import Binding, adding
from kctl.command.changes import Change
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.texts.output import counted, note
from kctl.texts.spelling import spelled


@click.command("remove", cls=KctlCommand, columns=COLUMNS)
@meaning
@click.option("--every", is_flag=True, help="Remove all ACLs; needed if nothing else is given.")
@pass_session
def remove(session: Session, meant: Meant, every: bool) -> int:
    """Remove the ACLs that match.

    Example: kctl acls remove --allow User:alice --topic orders
    """
    if not any(meant) and not every:
        raise KctlError("no ACLs are selected", exit_code=Exit.USAGE, hints=("--every removes all of them",))
    filters = list(meant.filters())
    doomed = list(dict.fromkeys(binding for wanted in filters for binding in described(session, wanted)))
    if not doomed:
        raise KctlError("no ACL matches", exit_code=Exit.NOT_FOUND, hints=("kctl acls list",))
    change = Change(session, COLUMNS, map(row, doomed))
    if not change.confirmed(f"Remove {counted(len(doomed), 'ACL')}?", type_this=str(len(doomed))):
        return Exit.DONE
    errors = _delete(session, doomed)
    note(session.settings, "undo:")
    for binding in doomed:
        note(session.settings, f"  {spelled(session.settings, adding(binding))}")
    return change.done(
        errors=errors,
        verified=f"{counted(len(doomed), 'ACL')} removed",
        seen=lambda: not set(doomed) & in_force(session, anywhere=True),
    )


def _delete(session: Session, doomed: list[Binding]) -> list[KctlError]:
    """Exactly those that were shown, whatever was added since."""
    from kafkad.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest

    exact = [Filter(*b.resource, b.principal, b.host, b.operation, b.permission) for b in doomed]
    results = session.call(
        DeleteAclsRequest(filters=[DeleteAclsFilter(**one.fields()) for one in exact])
    ).filter_results
    return [
        acl_failure(result.error_code, f"not removed: {binding}", result.error_message)
        for binding, result in zip(doomed, results, strict=True)
        if result.error_code
    ]
