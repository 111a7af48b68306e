"""`kctl users delete`."""

from __future__ import annotations

import click

from kctl.command.changes import Change
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.texts.output import counted
from kctl.users.credentials import COLUMNS, MECHANISMS, altered, described


@click.command("delete", cls=KctlCommand, columns=COLUMNS)
@click.argument("users", nargs=-1, required=True, metavar="USER…")
@click.option(
    "--mechanism", type=click.Choice(list(MECHANISMS)), help="Only this mechanism.  [default: all the user has]"
)
@pass_session
def delete(session: Session, users: tuple[str, ...], mechanism: str | None) -> int:
    """Delete SCRAM credentials of users.

    Example: kctl users delete alice
    """
    from kafkad.wire.messages.alter_user_scram_credentials import ScramCredentialDeletion

    found, errors = described(session, users)
    doomed = [credential for credential in found if mechanism in (None, credential.mechanism)]
    spared = {credential.user for credential in found} - {credential.user for credential in doomed}
    errors += [
        KctlError(f'user "{user}" has no {mechanism} credentials', exit_code=Exit.NOT_FOUND) for user in sorted(spared)
    ]
    if not doomed:
        return answer(session, COLUMNS, (), errors)
    change = Change(session, COLUMNS, [credential.row() for credential in doomed], errors)
    names = sorted({credential.user for credential in doomed})
    if not change.confirmed("Delete these credentials?", type_this=names[0] if len(names) == 1 else str(len(names))):
        return change.code
    deletions = [ScramCredentialDeletion(name=one.user, mechanism=MECHANISMS[one.mechanism]) for one in doomed]
    return change.done(
        errors=altered(session, deletions=deletions),
        verified=f"{counted(len(doomed), 'credential')} deleted",
        seen=lambda: not set(doomed) & set(described(session)[0]),
    )
