"""The settings of Kafka's clients, as .properties files and -X have them, in kctl's own words.

librdkafka's names are known too, as in kcat's configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkad.jaas import parse_jaas
from kafkad.properties import java_text, parse_properties
from kctl.errors import Exit, KctlError, did_you_mean
from kctl.texts.text_files import content_of

_FIELDS = {
    "bootstrap.servers": "bootstrap",
    "metadata.broker.list": "bootstrap",
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "mechanism",
    "sasl.mechanisms": "mechanism",
    "sasl.username": "username",
    "sasl.password": "password",
    "sasl.kerberos.service.name": "kerberos_service",
    "sasl.kerberos.principal": "username",
    "sasl.kerberos.keytab": "keytab",
    "ssl.truststore.location": "ca",
    "ssl.truststore.certificates": "ca",
    "ssl.ca.location": "ca",
    "ssl.ca.pem": "ca",
    "ssl.truststore.password": "ca_password",
    "ssl.keystore.location": "certificate",
    "ssl.keystore.certificate.chain": "certificate",
    "ssl.certificate.location": "certificate",
    "ssl.certificate.pem": "certificate",
    "ssl.keystore.key": "key",
    "ssl.key.location": "key",
    "ssl.key.pem": "key",
    "ssl.key.password": "key_password",
    "ssl.keystore.password": "key_password",  # the last one wins: a PKCS12 store has one password for all
}
_IMPLIED = {"ssl.keystore.type", "ssl.truststore.type"}
"""Files say themselves what they are."""
_JAAS = "sasl.jaas.config"
_HOSTNAMES = "ssl.endpoint.identification.algorithm"
NAMES = (*_FIELDS, _HOSTNAMES, _JAAS)

_MODULES = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": {"username": "username", "password": "password"},
    "org.apache.kafka.common.security.scram.ScramLoginModule": {
        "username": "username",
        "password": "password",
        "tokenauth": "tokenauth",
    },
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": {"token": "token"},
    "com.sun.security.auth.module.Krb5LoginModule": {
        "principal": "username",
        "keyTab": "keytab",
        "serviceName": "kerberos_service",
    },
}
_ABOUT_TICKETS = {
    "useKeyTab",
    "storeKey",
    "useTicketCache",
    "renewTGT",
    "doNotPrompt",
    "refreshKrb5Config",
    "isInitiator",
}
"""Options of Java's module for Kerberos that are implied: kctl has a keytab, or else takes the system's tickets."""


class Translated(NamedTuple):
    """`fields` as a context has them, `sources` says which setting each is from; `unknown` are kept as they are."""

    fields: dict[str, Any]
    sources: dict[str, str]
    unknown: dict[str, str]


def translate(settings: Mapping[str, str]) -> Translated:
    done = Translated({}, {}, {})
    for name, field in _FIELDS.items():
        if name in settings:
            done.fields[field] = settings[name]
            done.sources[field] = name
    if _HOSTNAMES in settings:
        done.fields["check_hostname"] = settings[_HOSTNAMES].lower() not in ("", "none")
        done.sources["check_hostname"] = _HOSTNAMES
    if _JAAS in settings:
        _log_in(settings[_JAAS], done)
    known = {*_FIELDS, _HOSTNAMES, *_IMPLIED, _JAAS}
    done.unknown.update((name, value) for name, value in settings.items() if name not in known)
    return done


def translate_flags(settings: Mapping[str, str]) -> dict[str, Any]:
    """The fields for -X flags; a name without a meaning is an error."""
    translated = translate(settings)
    for name in translated.unknown:
        hints = did_you_mean(name, NAMES) or (f"there are: {', '.join(NAMES)}",)
        raise KctlError(f'unknown setting "{name}"', exit_code=Exit.USAGE, hints=hints)
    return translated.fields


def _log_in(line: str, done: Translated) -> None:
    """A JAAS line: module, flag, options. What of it says nothing to kctl stays in the line that is kept."""
    if not line.strip():
        done.unknown[_JAAS] = line
        return
    try:
        login = parse_jaas(line if line.rstrip().endswith(";") else f"{line};")
    except ValueError as error:
        raise KctlError(
            f"{_JAAS} cannot be read: {error}",
            exit_code=Exit.USAGE,
            hints=('MODULE required username="alice" password="…";',),
        ) from None
    fields = _MODULES.get(login.module)
    if fields is None:
        done.unknown[_JAAS] = line
        return
    for option, value in login.options.items():
        if option in fields:
            done.fields[fields[option]] = value
            done.sources[fields[option]] = _JAAS
        elif option not in _ABOUT_TICKETS:
            done.unknown[_JAAS] = line


def read(file: str) -> dict[str, str]:
    """As Kafka's own clients read it."""
    return {each.name: each.value for each in parse_properties(java_text(content_of(file)))}
