"""`kctl tokens expire`."""

from __future__ import annotations

import click

from kctl.command.changes import Change
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit
from kctl.reach.session import Session
from kctl.texts.parsing import parse_duration_ms
from kctl.tokens.asking import COLUMNS, described, token_failure, token_named


@click.command("expire", cls=KctlCommand, columns=COLUMNS)
@click.argument("token")
@click.option("--in", "period", metavar="TIME", help="Let it expire after this time instead of at once.")
@pass_session
def expire(session: Session, token: str, period: str | None) -> int:
    """Expire a delegation token, now or later.

    TOKEN is its id, or its secret in base64. An expired token cannot be restored.

    Example: kctl tokens expire MTIzNDU2Nzg5MDEyMzQ1Ng
    """
    from kafkad.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest

    found = token_named(session, token)
    change = Change(session, COLUMNS, [found.row()])
    if not change.confirmed("Have this token expire?", type_this=found.token_id):
        return Exit.DONE
    milliseconds = -1 if period is None else parse_duration_ms(period)
    request = ExpireDelegationTokenRequest(hmac=found.secret, expiry_time_period_ms=milliseconds)
    response = session.ask_controller(request, lambda answer: [answer.error_code])
    if response.error_code:
        raise token_failure(response.error_code, f'token "{found.token_id}" was not expired')
    after = found._replace(expires_ms=response.expiry_timestamp_ms)
    return change.done(
        [after.row()],
        verified="it is gone" if period is None else "",
        seen=lambda: period is not None or all(token.token_id != found.token_id for token in described(session)),
    )
