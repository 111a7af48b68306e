"""`kctl quotas set` and `kctl quotas unset`."""

from __future__ import annotations

from collections.abc import Mapping

import click

from kctl.command.changes import Change
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError
from kctl.quotas.entities import (
    BY_SIZE,
    DEFAULT,
    KEYS,
    TYPES,
    Entity,
    altered,
    described,
    entity_of,
    entity_text,
    limit_text,
    quota_key,
    whole,
)
from kctl.reach.session import Session
from kctl.settings import Settings
from kctl.texts.output import Column
from kctl.texts.parsing import LARGEST, parse_size
from kctl.texts.spelling import quote, spelled

COLUMNS = (
    Column("entity", "Whom it is for."),
    Column("quota", "What is limited."),
    Column("current_value", "What it was.", "number", machine=True),
    Column("new_value", "What it becomes.", "number", machine=True),
    Column("current", "What it was, for people.", shown=True),
    Column("new", "What it becomes, for people.", shown=True),
)
_WORDS = "user=NAME … QUOTA=VALUE …"


@click.command("set", cls=KctlCommand, columns=COLUMNS)
@click.argument("words", nargs=-1, required=True, metavar=_WORDS)
@pass_session
def set_quotas(session: Session, words: tuple[str, ...]) -> int:
    """Set quotas of a user, client or address.

    Quotas are producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, and for an ip
    connection_creation_rate. user=<default> applies to every user without a quota of its own.

    Example: kctl quotas set user=alice client=billing producer_byte_rate=10MB
    """
    entity = entity_of(word for word in words if word.partition("=")[0] in TYPES)
    given = [word.partition("=") for word in words if word.partition("=")[0] not in TYPES]
    values = {quota_key(name): _value(quota_key(name), text) for name, _, text in given}
    return _alter(session, entity, values)


@click.command("unset", cls=KctlCommand, columns=COLUMNS)
@click.argument("words", nargs=-1, required=True, metavar="user=NAME … [QUOTA …]")
@pass_session
def unset_quotas(session: Session, words: tuple[str, ...]) -> int:
    """Remove quotas of a user, client or address.

    Example: kctl quotas unset user=alice producer_byte_rate
    """
    entity = entity_of(word for word in words if "=" in word)
    names = [quota_key(word) for word in words if "=" not in word]
    there = [quota.key for quota in described(session) if quota.entity == entity]
    if not there:
        raise KctlError(f"{entity_text(entity)} has no quota", exit_code=Exit.NOT_FOUND, hints=("kctl quotas list",))
    return _alter(session, entity, dict.fromkeys(names or there))


def _value(key: str, text: str) -> float:
    try:
        value = float(parse_size(text)) if key in BY_SIZE else float(text.removesuffix("%").removesuffix("/s"))
    except ValueError:
        raise KctlError(f'"{text}" is not a valid {key}: {KEYS[key]}', exit_code=Exit.USAGE) from None
    if not 0 < value < float("inf"):
        raise KctlError(f"{key} must be greater than 0", exit_code=Exit.USAGE, hints=("kctl quotas unset removes it",))
    return value


def _alter(session: Session, entity: Entity, values: Mapping[str, float | None]) -> int:
    if not entity or not values:
        raise KctlError(f"give an entity and quotas: {_WORDS}", exit_code=Exit.USAGE)
    now = {quota.key: quota.value for quota in described(session) if quota.entity == entity}
    rows = [
        {
            "entity": entity_text(entity),
            "quota": key,
            "current_value": now.get(key),
            "new_value": value,
            "current": limit_text(key, now[key]) if key in now else None,
            "new": None if value is None else limit_text(key, value),
        }
        for key, value in values.items()
    ]
    change = Change(session, COLUMNS, rows)
    if not change.confirmed(f"Change quotas of {entity_text(entity)}?"):
        return Exit.DONE
    errors = altered(session, entity, values)
    wanted = {key: value for key, value in values.items() if value is not None}

    def is_so() -> bool:
        found = {quota.key: quota.value for quota in described(session) if quota.entity == entity}
        return {key: found[key] for key in values if key in found} == wanted

    undo = (
        ""
        if errors
        else _undo(session.settings, entity, {key: now.get(key) for key in values if now.get(key) != values[key]})
    )
    return change.done(errors=errors, verified="the brokers have it", seen=is_so, undo=undo)


def _undo(settings: Settings, entity: Entity, before: Mapping[str, float | None]) -> str:
    """The commands that bring back what was there before; None: the quota was not set."""
    whom = " ".join(quote(f"{kind}={DEFAULT if name is None else name}") for kind, name in entity)
    restored = [
        f"{key}={min(whole(value), LARGEST) if key in BY_SIZE else whole(value)}"
        for key, value in before.items()
        if value is not None
    ]
    fresh = [key for key, value in before.items() if value is None]
    commands = [
        f"quotas {verb} {whom} {' '.join(words)}" for verb, words in (("set", restored), ("unset", fresh)) if words
    ]
    return spelled(settings, *commands)
