"""A cluster's address and login, handed to a program as KCTL_* variables: `kafkad_etl.topic` reads them, and so does
kctl where a program calls it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kafkad_etl.cluster.clusters import servers
from kafkad_etl.messages import Client
from kctl.reach.access import FIELDS, SECRETS, Access, Secret

_FILES = ("ca", "certificate", "key")
_KEY = "ssl.keystore.key"
_SHORTEST_LINE = 32
"""Of a private key; shorter lines could be any text."""


def variables_of(access: Access, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with this access in place of any other. Commands and files with secrets have been read, and
    paths do not depend on the current directory."""
    others = {_variable(name) for name in (*FIELDS, "context")}
    texts = {name: _text(access, name) for name in Access._fields if name != "context"}
    ours = {_variable(name): text for name, text in texts.items() if text}
    return {name: text for name, text in environ.items() if name not in others} | ours


def _variable(field: str) -> str:
    return f"KCTL_{field.upper()}"


def _text(access: Access, name: str) -> str:
    value: object = getattr(access, name)
    if name == "bootstrap":
        return servers(access)
    if isinstance(value, Secret):
        return value()
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    is_path = name in _FILES and text and "-----BEGIN " not in text
    return os.path.abspath(os.path.expanduser(text)) if is_path else text


def secrets_of(access: Access, client: Client) -> frozenset[str]:
    """What must not be shown, in each form in which Kafka's client or a program might print it."""
    given = (getattr(access, name)() for name in SECRETS)
    lines = (line for line in client.get(_KEY, "").splitlines() if len(line) >= _SHORTEST_LINE and "-----" not in line)
    return frozenset(secret for secret in (*given, *lines) if secret)
