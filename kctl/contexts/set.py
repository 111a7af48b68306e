"""`kctl contexts set`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from kctl.command.cluster_names import context_names
from kctl.command.passwords import given_secret
from kctl.command.verb import KctlCommand, pass_settings
from kctl.contexts.rows import COLUMNS, load, save, tell_of_one, undo_of_new
from kctl.errors import Exit, KctlError
from kctl.reach.access import FIELDS, VARIANTS, access_of, values_of
from kctl.reach.contexts_file import OTHERS, Contexts, check_name
from kctl.settings import Settings
from kctl.texts.output import note

_BOOLEAN = ("check_hostname", "protected", "tokenauth")


def _fields(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [f"{field}=" for field in FIELDS if field.startswith(incomplete)]


@click.command("set", cls=KctlCommand, columns=COLUMNS)
@click.argument("name", shell_complete=context_names)
@click.argument("fields", nargs=-1, required=True, metavar="FIELD=VALUE…", shell_complete=_fields)
@pass_settings
def set_fields(settings: Settings, name: str, fields: tuple[str, ...]) -> int:
    """Create or change a context.

    \b
    bootstrap            HOST:PORT, several with commas
    security_protocol    PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
    mechanism            PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI
    username, password   of PLAIN and SCRAM
    tokenauth            true: they are the id and the HMAC of a delegation token
    token                of OAUTHBEARER
    keytab               of GSSAPI, with the principal as username; without one, the system's tickets are used (kinit)
    kerberos_service     the first part of the brokers' principals, if it is not kafka
    ca, ca_password      a file with the CAs that are trusted, PEM or PKCS12
    certificate, key     files with what the client shows, PEM; certificate alone may be PKCS12
    key_password         of the key, or of the PKCS12 file
    check_hostname       false: a certificate may be for another name
    client_id            what brokers' logs and quotas call this client
    protected            true: each change asks for the context's name, too

    "FIELD=" removes a field. "password=-" asks for the password, or reads it from standard input. Instead of password,
    token, ca_password or key_password you can set password_command and so on, whose output is the secret, or
    password_file.

    Example: kctl contexts set prod bootstrap=kafka-1:9093 security_protocol=SSL ca=/etc/kafka/ca.pem protected=true
    """
    check_name(name)
    load()  # a file that cannot be read is refused before a secret is asked for
    given = [_parsed(field) for field in fields]

    def with_fields(contexts: Contexts) -> Contexts:
        fields = changed(contexts.contexts.get(name, {}), given)
        values_of(_used(fields))
        return contexts.with_context(name, fields)

    before, after = save(settings, with_fields)
    is_new = name not in before.contexts
    tell_of_one(settings, after, name, f"context {name} is {'made' if is_new else 'changed'}")
    if is_new:
        undo_of_new(settings, name)
    try:
        access_of([_used(after.contexts[name])])
    except KctlError as error:
        note(settings, f"it cannot be used yet: {error.what}")
    return Exit.DONE


def changed(before: dict[str, Any], changes: list[tuple[str, Any]]) -> dict[str, Any]:
    """A secret replaces the other ways in which the same secret was given."""
    after = dict(before)
    for field, value in changes:
        if field in VARIANTS:
            for variant in [name for name in after if VARIANTS.get(name) == VARIANTS[field]]:
                del after[variant]
        after.pop(field, None)
        if value != "":
            after[field] = value
    return after


def _used(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if field != OTHERS}


def _parsed(text: str) -> tuple[str, Any]:
    field, equals, value = text.partition("=")
    if not equals:
        raise KctlError(f'"{text}" is not FIELD=VALUE', exit_code=Exit.USAGE)
    if value == "-" and VARIANTS.get(field) == field:
        return field, given_secret(field, field)
    if field in _BOOLEAN and value:
        return field, values_of({field: value})[field]
    return field, value
