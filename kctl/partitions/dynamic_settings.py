"""Reads and writes the dynamic throttle settings of brokers and topics.

A broker's are told and changed by that broker alone, so those of one that is down stay as they are, and unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from kctl.configs.resources import Resource, altered, described
from kctl.configs.values import DELETE, SET, Assignment
from kctl.errors import KctlError
from kctl.partitions.throttle_settings import BROKER, DIRECTORY_RATE, LISTS, RATES, TOPIC, Setting
from kctl.reach.session import Session

Read = tuple[dict[Setting, str | None], list[KctlError]]


def read_settings(session: Session, settings: Iterable[Setting]) -> Read:
    """The value of each setting that could be read (None: not set there), and what could not be asked."""
    names: dict[Resource, list[str]] = defaultdict(list)
    for kind, owner, name in settings:
        names[Resource(kind, owner)].append(name)
    keys = list(dict.fromkeys(name for own in names.values() for name in own))
    found, errors = described(session, names, keys)
    values: dict[Setting, str | None] = {}
    for (kind, owner), entries in found.items():
        set_there = {entry.name: entry.value for entry in entries if entry.source == kind}
        values |= {Setting(kind, owner, name): set_there.get(name) for name in names[Resource(kind, owner)]}
    return values, errors


def write_settings(session: Session, values: Mapping[Setting, str | None]) -> list[KctlError]:
    """Sets them, or with None removes them; what was refused."""
    changes: dict[Resource, list[Assignment]] = defaultdict(list)
    for (kind, owner, name), value in values.items():
        changes[Resource(kind, owner)].append(Assignment(name, DELETE if value is None else SET, value))
    return list(altered(session, changes, validate_only=False).values())


def are_so(session: Session, values: Mapping[Setting, str | None]) -> bool:
    """True if the settings read back as written, where they can be read: brokers learn of changes a moment later."""
    now, _ = read_settings(session, values)
    return all(now[setting] == value for setting, value in values.items() if setting in now)


def throttle_settings(brokers: Iterable[int], topics: Iterable[str]) -> Iterator[Setting]:
    """All settings that may slow down copies on these brokers and of these topics."""
    for broker in brokers:
        yield from (Setting(BROKER, str(broker), name) for name in (*RATES, DIRECTORY_RATE))
    for topic in topics:
        yield from (Setting(TOPIC, topic, name) for name in LISTS)
