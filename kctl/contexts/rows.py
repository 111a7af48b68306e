"""Contexts as rows, and what of them nobody shall see."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from kctl.reach.access import SECRETS
from kctl.reach.contexts_file import Contexts, path, read, update
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Row, Writer, keep_writing, note
from kctl.texts.spelling import command

HIDDEN = "(hidden)"
COLUMNS = (
    Column("name", "The context's name."),
    Column("mark", "Whether it is the current one.", header="CURRENT", shown=True),
    Column("current", "Whether it is the current one.", machine=True),
    Column("bootstrap", "Where to begin.", "list"),
    Column("security_protocol", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.", header="PROTOCOL"),
    Column("mechanism", "How to log in.", header="SASL"),
    Column("username", "As whom.", header="USER"),
    Column("protected", "Whether each change asks for the context's name.", header="PROTECTED"),
)
_SHOWN = (
    "acks", "auto.", "batch.size", "bootstrap.servers", "buffer.memory", "check.crcs", "client.dns.lookup",
    "client.id", "client.rack", "compression.type", "connections.max.idle.ms", "default.api.timeout.ms",
    "delivery.timeout.ms", "enable.", "fetch.", "group.id", "group.instance.id", "group.protocol",
    "heartbeat.interval.ms", "isolation.level", "key.deserializer", "key.serializer", "linger.ms", "max.",
    "metadata.", "partitioner.", "receive.buffer.bytes", "reconnect.", "request.timeout.ms", "retries", "retry.",
    "sasl.kerberos.service.name", "sasl.mechanism", "schema.registry.url", "security.protocol", "send.buffer.bytes",
    "session.timeout.ms", "socket.", "ssl.cipher.suites", "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm", "ssl.keystore.location", "ssl.keystore.type", "ssl.protocol",
    "ssl.truststore.location", "ssl.truststore.type", "transaction.timeout.ms", "transactional.id",
    "value.deserializer", "value.serializer",
)  # fmt: skip
"""The settings of Kafka's clients that hold no secret, or how their names begin. Others may: basic.auth.user.info."""


def load() -> Contexts:
    return read(path(os.environ))


def save(settings: Settings, change: Callable[[Contexts], Contexts]) -> tuple[Contexts, Contexts]:
    """The contexts before and after a change, which is saved unless it is a dry run. It may be computed twice: one
    that cannot be made leaves no directory behind, and others may have changed the contexts just before."""
    before = load()
    after = change(before)
    if settings.dry_run:
        return before, after
    keep_writing()
    return update(path(os.environ), change)


def tell(settings: Settings, what: str) -> None:
    """Says what was done, or would have been if it were no dry run."""
    note(settings, f"dry run: nothing was changed; otherwise {what}" if settings.dry_run else what)


def undo_of_new(settings: Settings, name: str) -> None:
    """Prints the command that deletes a context which was not there before."""
    if not settings.dry_run:
        note(settings, f"undo: kctl {command('contexts delete', name)}")


def tell_of_one(settings: Settings, contexts: Contexts, name: str, what: str) -> None:
    """And shows programs what became of the context; people have been told."""
    tell(settings, what)
    if not settings.is_text:
        document = Document(settings.command, dry_run=settings.dry_run)
        Writer(settings, COLUMNS, document).write(rows(contexts, [name] if name in contexts.contexts else []))


def rows(contexts: Contexts, names: Iterable[str]) -> list[Row]:
    return [_row(name, contexts.contexts[name], name == contexts.current) for name in names]


def _row(name: str, fields: dict[str, Any], current: bool) -> Row:
    bootstrap = fields.get("bootstrap", "localhost:9092")
    return {
        "name": name,
        "mark": "*" if current else "",
        "current": current,
        "bootstrap": bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap,
        "security_protocol": fields.get("security_protocol", "PLAINTEXT"),
        "mechanism": fields.get("mechanism"),
        "username": fields.get("username"),
        "protected": bool(fields.get("protected", False)),
    }


def harmless(name: str, value: Any) -> Any:
    """A field's value as it may be printed: without secrets, keys that stand there themselves, and logins in URLs."""
    if "PRIVATE KEY-----" in str(value) or name in SECRETS:
        return HIDDEN
    if "-----BEGIN " in str(value):
        return "(a certificate)"
    return _without_login(value) if isinstance(value, str) else value


def harmless_setting(name: str, value: str) -> str:
    """The same of a Kafka client's setting."""
    lower = name.lower()
    is_shown = any(lower.startswith(known) if known.endswith(".") else lower == known for known in _SHOWN)
    return _without_login(value) if is_shown else HIDDEN


def _without_login(value: str) -> str:
    """A URL keeps its place, and loses who asks there with which password."""
    return re.sub(r"(?<=://)[^/@\s]*@", f"{HIDDEN}@", value)
