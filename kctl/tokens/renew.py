"""`kctl tokens renew`."""

from __future__ import annotations

import click

from kctl.command.changes import Change
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit
from kctl.reach.session import Session
from kctl.texts.parsing import parse_duration_ms
from kctl.tokens.asking import COLUMNS, token_failure, token_named


@click.command("renew", cls=KctlCommand, columns=COLUMNS)
@click.argument("token")
@click.option("--for", "period", metavar="TIME", help="New lifetime from now.  [default: as the brokers set it]")
@pass_session
def renew(session: Session, token: str, period: str | None) -> int:
    """Extend the lifetime of a delegation token.

    TOKEN is its id, or its secret in base64.

    Example: kctl tokens renew MTIzNDU2Nzg5MDEyMzQ1Ng --for 1d
    """
    from kafkad.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

    found = token_named(session, token)
    change = Change(session, COLUMNS, [found.row()])
    if not change.confirmed("Renew this token?"):
        return Exit.DONE
    milliseconds = -1 if period is None else parse_duration_ms(period)
    request = RenewDelegationTokenRequest(hmac=found.secret, renew_period_ms=milliseconds)
    response = session.ask_controller(request, lambda answer: [answer.error_code])
    if response.error_code:
        raise token_failure(response.error_code, f'token "{found.token_id}" was not renewed')
    return change.done([found._replace(expires_ms=response.expiry_timestamp_ms).row()], verified="it is renewed")
