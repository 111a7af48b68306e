"""`kctl users set-scram`."""

from __future__ import annotations

import click

from kctl.command.changes import Change
from kctl.command.passwords import given_secret
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.texts.spelling import command, spelled
from kctl.users.credentials import (
    COLUMNS,
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    Credential,
    altered,
    described,
    new_salt,
    salted_password,
)


@click.command("set-scram", cls=KctlCommand, columns=COLUMNS)
@click.argument("user")
@click.option("--mechanism", type=click.Choice(list(MECHANISMS)), default="SCRAM-SHA-512", show_default=True)
@click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=8192,
    show_default=True,
    help="Number of hash iterations.",
)
@pass_session
def set_scram(session: Session, user: str, mechanism: str, iterations: int) -> int:
    """Set a user's SCRAM password.

    The password is read from the terminal, or from the first line of standard input. Only its salted hash is sent. Asks
    for confirmation before replacing a password: the old one cannot be restored.

    Example: kctl users set-scram alice
    """
    from kafkad.wire.messages.alter_user_scram_credentials import ScramCredentialUpsertion

    credential = Credential(user, mechanism, iterations)
    password = "" if session.settings.dry_run else _password(user)
    had, _ = described(session, [user])
    change = Change(session, COLUMNS, [credential.row()])
    is_new = not any(one.mechanism == mechanism for one in had)
    question = f'{"Set" if is_new else "Replace"} the {mechanism} password of "{user}"?'
    if not change.confirmed(question, only_adds=is_new):
        return Exit.DONE
    salt = new_salt()
    upsertion = ScramCredentialUpsertion(
        name=user,
        mechanism=MECHANISMS[mechanism],
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(mechanism, password, salt, iterations),
    )
    errors = altered(session, upsertions=[upsertion])
    undo = spelled(session.settings, command("users delete", user, options=f"--mechanism {mechanism}"))
    return change.done(
        errors=errors,
        verified=f"{user} has it",
        seen=lambda: credential in described(session, [user])[0],
        undo="" if errors or not is_new else undo,
    )


def _password(user: str) -> str:
    given = given_secret(f"Password of {user}", twice=True)
    if not given:
        raise KctlError(
            "the password is empty", exit_code=Exit.USAGE, hints=("it is the first line of standard input",)
        )
    return given
