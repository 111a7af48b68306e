"""`kctl configs set` and `unset`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import click

from kctl.command.changes import Change
from kctl.command.verb import KctlCommand, pass_session
from kctl.configs.naming import resources_and_settings
from kctl.configs.resources import Described, Entry, Resource, altered, described, is_secret, parse_resource
from kctl.configs.values import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    Assignment,
    effect,
    effect_on_topics,
    in_milliseconds,
    in_other_units,
    is_same,
    misspelt,
    parse_assignments,
    result,
    with_meaning,
    without_brackets,
)
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.settings import Settings
from kctl.texts.output import Column, Row, note
from kctl.texts.spelling import command, spelled

COLUMNS = (
    Column("resource", "What has the setting."),
    Column("name", "The setting's name."),
    Column("current", "Its value now.", machine=True),
    Column("new", "Its value after the change; null: the default.", machine=True),
    Column("current_shown", "Its value now.", header="CURRENT", shown=True),
    Column("new_shown", "Its value after the change.", header="NEW", shown=True),
    Column("source", "Where the current value is set.", wide=True),
    Column("changes", "Whether anything changes: a value that is the default too can be set, or not.", machine=True),
    Column("effect", "What follows from it."),
)

_IN_UNITS = {
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
}
"""What brokers count in several units: the first that has a value counts. They name those in other units beside a
topic's own value only where that in milliseconds is set too."""

_WARNINGS = {"topic": effect, "broker": effect_on_topics}
"""What says, by the kind of resource, what follows from a change."""


@click.command("set", cls=KctlCommand, columns=COLUMNS)
@click.argument(
    "words", nargs=-1, required=True, metavar="RESOURCE… NAME=VALUE…", shell_complete=resources_and_settings
)
@pass_session
def set_configs(session: Session, words: tuple[str, ...]) -> int:
    """Change settings, leaving all others as they are.

    Durations and sizes may have units: retention.ms=7d, segment.bytes=256MiB. For lists, NAME+=ITEM adds an item and
    NAME-=ITEM removes one.

    Example: kctl configs set topic/orders retention.ms=7d cleanup.policy+=compact
    """
    resources = [word for word in words if "=" not in word]
    assignments = [word for word in words if "=" in word]
    if not resources or not assignments:
        hint = "as in kctl configs set topic/orders retention.ms=7d"
        raise KctlError("name at least one resource and one setting", exit_code=Exit.USAGE, hints=(hint,))
    return change_settings(session, [parse_resource(name) for name in resources], parse_assignments(assignments))


@click.command("unset", cls=KctlCommand, columns=COLUMNS)
@click.argument("words", nargs=-1, required=True, metavar="RESOURCE… NAME…", shell_complete=resources_and_settings)
@pass_session
def unset(session: Session, words: tuple[str, ...]) -> int:
    """Reset settings to their defaults.

    A topic falls back to the settings of its brokers, a broker to the cluster-wide defaults and then to its
    configuration file.

    Example: kctl configs unset topic/orders retention.ms
    """
    resources = [word for word in words if "/" in word or word == "brokers"]
    names = [word for word in words if word not in resources]
    if not resources or not names:
        hint = "as in kctl configs unset topic/orders retention.ms"
        raise KctlError("name at least one resource and one setting", exit_code=Exit.USAGE, hints=(hint,))
    changes = [Assignment(name, DELETE, None) for name in names]
    return change_settings(session, [parse_resource(name) for name in resources], changes)


def change_settings(session: Session, resources: Sequence[Resource], changes: Sequence[Assignment]) -> int:
    """Checks, shows, asks, does, and reads back; a resource that cannot be changed leaves the others to be."""
    for resource in resources:
        if resource.has_quotas:
            hint = f"kctl quotas set changes the quotas of {resource.kind}s"
            raise KctlError(f"{resource} has quotas, not settings", exit_code=Exit.USAGE, hints=(hint,))
    found, errors = described_before(session, resources, changes)
    planned, sent, wrong = plan_all(found, changes)
    refused = altered(session, sent, validate_only=True) if sent else {}
    rows = {resource: planned[resource] for resource in planned if resource not in refused}
    change = Change(session, COLUMNS, chain.from_iterable(rows.values()), [*errors, *wrong, *refused.values()])
    if not any(row["changes"] for own in rows.values() for row in own):
        if rows:
            note(session.settings, "nothing to do: it is so already")
        return change.done()
    if not change.confirmed("Apply?"):
        return change.code
    refused = altered(session, {resource: sent[resource] for resource in rows}, validate_only=False)
    made = [resource for resource in rows if resource not in refused]
    reading = ReadingBack(session, [row for resource in made for row in rows[resource]], made, changes)
    return change.done(
        errors=list(refused.values()),
        verified="read back",
        seen=reading.is_so,
        different=reading.different,
        undo=undo_command(session.settings, {resource: found[resource] for resource in made}, changes),
    )


def described_before(
    session: Session, resources: Sequence[Resource], changes: Sequence[Assignment]
) -> tuple[Described, list[KctlError]]:
    """The settings as they are, each with all places that set it: of those that are unset, what they fall back to."""
    found, errors = described(session, resources, synonyms=True)
    unset = {change.name for change in changes if change.operation == DELETE} & _IN_UNITS.keys()
    if not unset or all(resource.kind != "topic" for resource in found):
        return found, errors
    broker = Resource("broker", str(min(session.cluster.brokers)))
    names = [name for setting in sorted(unset) for name in _IN_UNITS[setting]]
    at_broker = {entry.name: entry for entry in described(session, [broker], names)[0].get(broker, ())}
    below = {
        setting: [
            (at.source, name, at.value) for name in _IN_UNITS[setting] if (at := at_broker.get(name)) and at.value
        ]
        for setting in unset
    }
    for resource, entries in found.items():
        if resource.kind == "topic":
            found[resource] = [each._replace(synonyms=(*each.synonyms, *below.get(each.name, ()))) for each in entries]
    return found, errors


def to_send(resource: Resource, entries: Sequence[Entry], changes: Sequence[Assignment]) -> list[Assignment]:
    """The changes as the resource's brokers have to be told them.

    Where a list is not the resource's own, brokers add to the default that Kafka gives the setting, whatever value is
    in force: they are told all of the list that is to be.
    """
    known = {entry.name: entry for entry in entries}
    return [_to_send(resource, known, change) for change in changes]


def _to_send(resource: Resource, known: Mapping[str, Entry], change: Assignment) -> Assignment:
    if change.value is not None and _takes_brackets(change.name, known):
        change = change._replace(value=without_brackets(change.value))
    if change.operation not in (APPEND, SUBTRACT):
        return change
    entry = known.get(change.name)
    if entry is None:
        what = f"{change.name} is not set for {resource}, so what a change of it would add to is not known"
        raise KctlError(what, exit_code=Exit.USAGE, hints=(f"say all of it: {change.name}=…",))
    if entry.sensitive or entry.source == _own(resource):
        return change
    return Assignment(change.name, SET, result(entry.value, change))


def _takes_brackets(name: str, known: Mapping[str, Entry]) -> bool:
    """Around a list, as Kafka's tool has them. What is not set for all brokers, or for a listener, is not described."""
    if name in known:
        return known[name].is_list
    general = [entry for entry in known.values() if name.endswith(f".{entry.name}")]
    return any(entry.is_list for entry in general) if general else not is_secret(name, known)


def plan_all(
    found: Mapping[Resource, Sequence[Entry]], changes: Sequence[Assignment]
) -> tuple[dict[Resource, list[Row]], dict[Resource, list[Assignment]], list[KctlError]]:
    """The planned changes of each resource, what to send for it, and the errors of those that cannot change."""
    planned: dict[Resource, list[Row]] = {}
    sent: dict[Resource, list[Assignment]] = {}
    errors = []
    for resource, entries in found.items():
        try:
            wanted = to_send(resource, entries, changes)
            planned[resource] = plan(resource, entries, wanted)
            sent[resource] = wanted
        except KctlError as error:
            errors.append(error)
    return planned, sent, errors


def plan(resource: Resource, entries: Sequence[Entry], changes: Sequence[Assignment]) -> list[Row]:
    """The rows of one resource's changes. KctlError names a setting that is misspelt or cannot change."""
    known = {entry.name: entry for entry in entries}
    rows: list[Row] = []
    for change in changes:
        if wrong := misspelt(change.name, list(known), resource.has):
            raise wrong.with_hint(f"kctl configs describe {resource} --all shows what there is")
        entry = known.get(change.name)
        old = _stored(entry) if entry else None
        is_own = entry is not None and entry.source == _own(resource)
        new = _value_after(change, entry, is_own=is_own)
        differs = is_own if change.operation == DELETE else not is_own or old != new
        secret = is_secret(change.name, known)
        warning = _WARNINGS.get(resource.kind)
        said = "default" if new is None else _shown(change.name, new)
        rows.append(
            {
                "resource": str(resource),
                "name": change.name,
                "current": "(hidden)" if secret and entry else old,
                "new": "(hidden, new)" if secret and change.operation != DELETE else new,
                "current_shown": "(hidden)" if secret and entry else _shown(change.name, old),
                "new_shown": "(hidden, new)" if secret and change.operation != DELETE else said,
                "source": entry.source if entry else None,
                "changes": secret or differs,
                "effect": warning(change.name, _in_force(change.name, known), new) if warning and differs else None,
            }
        )
    return rows


def _shown(name: str, value: str | None) -> str | None:
    """An empty value can be seen."""
    return '""' if value == "" else with_meaning(name, value)


def _stored(entry: Entry) -> str | None:
    """What its source has, which does not count where the broker cannot use it: then it describes another value."""
    return next(
        (value for source, name, value in entry.synonyms if (source, name) == (entry.source, entry.name)), entry.value
    )


def _in_force(name: str, known: Mapping[str, Entry]) -> str | None:
    """A setting's value; where it is not set, that of the one which counts the same in minutes or hours."""
    for each in (name, *in_other_units(name)):
        if (entry := known.get(each)) and entry.value is not None:
            return in_milliseconds(each, entry.value)
    return None


def _value_after(change: Assignment, entry: Entry | None, *, is_own: bool) -> str | None:
    """What is in force after the change; None if that is not known."""
    if change.operation != DELETE:
        return result(entry.value if entry else None, change)
    if entry is None:
        return None
    return default_of(entry) if is_own else entry.value


def default_of(entry: Entry) -> str | None:
    """The value that a setting falls back to where it is set: that of the next place that sets it."""
    below = (in_milliseconds(name, value) for source, name, value in entry.synonyms if source != entry.source)
    return next(below, None)


class ReadingBack:
    """The settings that were changed, as brokers describe them now."""

    def __init__(
        self, session: Session, rows: Sequence[Row], resources: Sequence[Resource], changes: Sequence[Assignment]
    ) -> None:
        """`rows` are the plan."""
        self._session = session
        self._resources = resources
        self._unset = {change.name for change in changes if change.operation == DELETE}
        self._rows = [row for row in rows if row["new"] not in (None, "(hidden, new)")]
        self._now: dict[tuple[str, str], str | None] = {}

    def is_so(self) -> bool:
        """True if they are as planned. Once they are unset, those of a listener are not described, and what brokers
        count in other units has no value."""
        found, _ = described(self._session, self._resources)
        self._now = {(str(where), entry.name): entry.value for where, entries in found.items() for entry in entries}
        return all(map(self._matches, self._rows))

    def _matches(self, row: Row) -> bool:
        now = self._now.get((row["resource"], row["name"]))
        if now is None and row["name"] in self._unset:
            return True
        return is_same(now, row["new"])

    def different(self) -> list[KctlError]:
        """Those that have a value which they neither had before nor were given."""
        return [
            KctlError(f"{row['resource']}: {row['name']} is {now} now, not {row['new']}")
            for row in self._rows
            if row["name"] not in self._unset and not self._matches(row)
            if (now := self._now.get((row["resource"], row["name"]))) is not None and not is_same(now, row["current"])
        ]


def undo_command(settings: Settings, before: Mapping[Resource, Sequence[Entry]], changes: Sequence[Assignment]) -> str:
    """The commands that bring back what was; a secret cannot be brought back."""
    commands = []
    for resource, entries in before.items():
        own = {entry.name: entry for entry in entries if entry.source == _own(resource)}
        counted = {name: each.value for name, each in own.items() if not each.sensitive and _stored(each) == each.value}
        back = [f"{c.name}={counted[c.name]}" for c in changes if c.name in counted]
        gone = [c.name for c in changes if c.name not in own]
        if back:
            commands.append(command("configs set", str(resource), *back))
        if gone:
            commands.append(command("configs unset", str(resource), *gone))
    return spelled(settings, *commands)


def _own(resource: Resource) -> str:
    """The source of what is set on the resource itself."""
    return "all brokers" if resource.kind == "broker" and not resource.name else resource.kind
