"""The address of a cluster and the login for it: one value, made of flags, the environment, a context and defaults.

Nearest wins: flags (-b, then -X, then --command-config), KCTL_* variables, the chosen context, defaults. Which cluster
it is follows the same order, so that no context's password goes to an address that is not the context's: an address
given by a flag leaves KCTL_CONTEXT and the current context aside, KCTL_BOOTSTRAP the current context, and -c leaves
KCTL_BOOTSTRAP aside. Where an address and a context are both given by flags, or both by variables, it is that context
at that address.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple, Protocol

from kctl.errors import Exit, KctlError, did_you_mean
from kctl.texts.parsing import LARGEST_INT16, whole_number
from kctl.texts.text_files import in_utf8, text_of

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
DEFAULT_PORT = 9092
_ASKING = Lock()
_FALSE = {"false", "no", "off", "0", ""}
_TRUE = {"true", "yes", "on", "1"}


class Secret(NamedTuple):
    """Called when it is needed, and shown nowhere. KctlError USAGE if it is not UTF-8, in which secrets are sent."""

    value: str = ""
    command: str = ""
    file: str = ""

    def __call__(self) -> str:
        if self.command:
            with _ASKING:  # connections are opened in threads, and nobody wants to be asked in each
                return _printed_by(self.command)
        if self.file:
            return _first_line(self.file)
        return in_utf8(self.value, "the secret")

    def __bool__(self) -> bool:
        return any(tuple(self))

    def __repr__(self) -> str:
        return "Secret(hidden)" if self else "Secret()"


class Access(NamedTuple):
    """`certificate`, `key` and `ca` are paths (PEM or PKCS12), or PEM itself; `token` is OAUTHBEARER's.

    With `tokenauth`, `username` and `password` are the id and the HMAC of a delegation token. With GSSAPI, `username`
    is a principal of Kerberos: that of `keytab`, or of the tickets that the system has.
    """

    bootstrap: tuple[tuple[str, int], ...] = (("localhost", DEFAULT_PORT),)
    security_protocol: str = "PLAINTEXT"
    mechanism: str = ""
    username: str = ""
    password: Secret = Secret()
    tokenauth: bool = False
    token: Secret = Secret()
    keytab: str = ""
    kerberos_service: str = "kafka"
    ca: str = ""
    ca_password: Secret = Secret()
    certificate: str = ""
    key: str = ""
    key_password: Secret = Secret()
    check_hostname: bool = True
    client_id: str = "kctl"
    context: str = ""
    protected: bool = False

    @property
    def label(self) -> str:
        """The name that a person uses for it: the context's, or else the first address."""
        host, port = self.bootstrap[0]
        return self.context or f"{host}:{port}"

    @property
    def has_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")


class GivenSettings(Protocol):
    """The part of the settings that decides here."""

    context: str
    bootstrap: str
    command_config: str
    extra: Mapping[str, str]


SECRETS = ("password", "token", "ca_password", "key_password")
VARIANTS = {f"{secret}{end}": secret for secret in SECRETS for end in ("", "_command", "_file")}
"""The names under which a secret is given, and the secret."""
_PLAIN_FIELDS = tuple(name for name in Access._fields if name not in SECRETS and name != "context")
FIELDS = (*_PLAIN_FIELDS, *VARIANTS)
"""The fields of a context; the variable for each is KCTL_ with its name in capitals."""

Layer = Mapping[str, Any]
"""Some of the fields, as one place gives them."""


def resolve(asked: GivenSettings, environment: Mapping[str, str]) -> Access:
    """The access that flags, environment and contexts ask for."""
    flags = _flags(asked)
    variables = _variables(environment)
    if asked.context:
        variables.pop("bootstrap", None)
    addressed = "bootstrap" in flags or "bootstrap" in variables
    named = asked.context or ("" if "bootstrap" in flags else environment.get("KCTL_CONTEXT", ""))
    name, fields = _context(named, environment, addressed)
    return access_of([fields, variables, flags], name)


def access_of(layers: list[Layer], context: str = "") -> Access:
    """The fields of all layers, those of a later one before those of an earlier one, checked."""
    fields: dict[str, Any] = {}
    for layer in layers:
        given = {VARIANTS[name] for name in layer if name in VARIANTS}
        fields = {name: value for name, value in fields.items() if VARIANTS.get(name) not in given} | dict(layer)
    access = Access(**{name: value for name, value in values_of(fields).items() if value is not None}, context=context)
    _check(access)
    return access


def addresses(text: str | list[str]) -> tuple[tuple[str, int], ...]:
    """`host:port,[::1]:port,host`, as -b has it; also with a listener's `SSL://` in front."""
    words = text.split(",") if isinstance(text, str) else [str(word) for word in text]
    found = tuple(_address(word.strip()) for word in words if word.strip())
    if not found:
        raise KctlError("no bootstrap address is given", exit_code=Exit.USAGE, hints=("-b HOST:PORT",))
    return found


def _address(text: str) -> tuple[str, int]:
    bare = text.rpartition("://")[2]
    host, colon, port = bare.rpartition(":")
    if not colon or bare.endswith("]"):
        host, port = bare, str(DEFAULT_PORT)
    elif ":" in host and not host.startswith("["):
        host, port = bare, str(DEFAULT_PORT)  # an IPv6 address without brackets
    number = whole_number(port, 65535)
    if not host.strip("[]") or not number:
        raise KctlError(f'"{text}" is not an address', exit_code=Exit.USAGE, hints=("HOST:PORT, several with commas",))
    return host.strip("[]"), number


def _flags(asked: GivenSettings) -> Layer:
    fields: dict[str, Any] = {}
    if asked.extra or asked.command_config:
        from kctl.reach.properties import read, translate, translate_flags

        if asked.command_config:
            fields |= translate(read(asked.command_config)).fields
        fields |= translate_flags(asked.extra)
    if asked.bootstrap:
        fields["bootstrap"] = asked.bootstrap
    return fields


def _context(name: str, environment: Mapping[str, str], addressed: bool) -> tuple[str, Layer]:
    """The context of this name, or the current one, unless an address is given without a name."""
    if not name and addressed:
        return "", {}
    from kctl.reach.contexts_file import OTHERS, path, read

    contexts = read(path(environment))
    name = name or contexts.current
    fields = contexts.get(name) if name else {}
    return name, {field: value for field, value in fields.items() if field != OTHERS}


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[f"KCTL_{name.upper()}"] for name in FIELDS if environment.get(f"KCTL_{name.upper()}")}


def values_of(fields: Layer) -> dict[str, Any]:
    """Values as Access has them; None stands for the default. KctlError for an unknown field or value."""
    for name in fields:
        if name not in FIELDS:
            hints = did_you_mean(name, FIELDS) or (f"there are: {', '.join(FIELDS)}",)
            raise KctlError(f'contexts have no field "{name}"', exit_code=Exit.USAGE, hints=hints)
    values: dict[str, Any] = {name: str(fields[name]) for name in _PLAIN_FIELDS if name in fields}
    secrets = {name: _secret(fields, name) for name in SECRETS}
    return {
        **values,
        **secrets,
        "bootstrap": addresses(fields["bootstrap"]) if "bootstrap" in fields else None,
        "security_protocol": values["security_protocol"].upper() if "security_protocol" in values else None,
        "mechanism": values["mechanism"].upper() if "mechanism" in values else None,
        "tokenauth": _truth(fields, "tokenauth"),
        "check_hostname": _truth(fields, "check_hostname"),
        "protected": _truth(fields, "protected"),
    }


def _secret(fields: Layer, name: str) -> Secret:
    value, command, file = (str(fields.get(name + end) or "") for end in ("", "_command", "_file"))
    return Secret(value, command, file)


def _truth(fields: Layer, name: str) -> bool | None:
    if name not in fields:
        return None
    text = str(fields[name]).lower()
    if text not in _TRUE | _FALSE:
        raise KctlError(f'{name} must be true or false, not "{fields[name]}"', exit_code=Exit.USAGE)
    return text in _TRUE


def _check(access: Access) -> None:
    for name, text in (("client.id", access.client_id), ("the user's name", access.username)):
        size = len(in_utf8(text, name).encode())
        if size > LARGEST_INT16:
            raise KctlError(f"{name} has {size} bytes, {LARGEST_INT16} are the most", exit_code=Exit.USAGE)
    if access.security_protocol not in PROTOCOLS:
        known = ", ".join(PROTOCOLS)
        raise KctlError(
            f'there is no security protocol "{access.security_protocol}"',
            exit_code=Exit.USAGE,
            hints=(f"there are: {known}",),
        )
    if not access.has_sasl:
        return
    if access.mechanism not in MECHANISMS:
        what = f'kctl has no SASL mechanism "{access.mechanism}"' if access.mechanism else "no SASL mechanism is given"
        known = ", ".join(MECHANISMS)
        hints = [f"there are: {known}", "set mechanism in a context, KCTL_MECHANISM or -X sasl.mechanism"]
        raise KctlError(what, exit_code=Exit.USAGE, hints=hints)
    missing = _missing(access)
    if missing:
        ways = [missing, f"{missing}_command", f"{missing}_file"] if missing in SECRETS else [missing]
        hints = [f"set {' or '.join(ways)} in a context, or KCTL_{missing.upper()}"]
        raise KctlError(f"{access.mechanism} needs a {missing}", exit_code=Exit.USAGE, hints=hints)


def _missing(access: Access) -> str:
    if access.mechanism == "OAUTHBEARER":
        return "" if access.token else "token"
    if access.mechanism == "GSSAPI":
        return "username" if access.keytab and not access.username else ""
    return "" if access.username and access.password else "password" if access.username else "username"


@lru_cache
def _printed_by(command: str) -> str:
    """Once for all connections of a run; the command may ask on the terminal."""
    import subprocess

    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, check=False)
    printed = done.stdout.decode("utf-8", "surrogateescape")
    if done.returncode or not printed.strip():
        how = f"ended with {done.returncode}" if done.returncode else "printed nothing"
        raise KctlError(f"the command for a secret {how}: {command}", exit_code=Exit.UNAUTHORIZED)
    return in_utf8(printed, "the secret").removesuffix("\n").removesuffix("\r")


@lru_cache
def _first_line(file: str) -> str:
    import os.path

    return text_of(os.path.expanduser(file)).partition("\n")[0].rstrip("\r")
