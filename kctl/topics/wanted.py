"""Topics as they are to be: from options or a file, checked, and compared with those that are. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kctl.configs.resources import Entry
from kctl.configs.values import SET, parse_assignments, values_in_yaml, with_meaning, without_brackets
from kctl.errors import Exit, KctlError, did_you_mean
from kctl.partitions.throttle_settings import LISTS
from kctl.texts.parsing import whole_number

_LONGEST_NAME = 249
_FIELDS = ("name", "partitions", "replication", "configs", "replicas")
"""Of a topic in a file, in the order of `Wanted`."""


class Wanted(NamedTuple):
    """A topic to be; None leaves it to the broker. `placement`: brokers of each partition, in order, the preferred
    leader first."""

    name: str
    partitions: int | None = None
    replication: int | None = None
    configs: Mapping[str, str] = {}
    placement: Sequence[Sequence[int]] | None = None


def check_name(name: str) -> None:
    """KctlError USAGE if no topic can be called so."""
    why = ""
    if not name:
        why = "it is empty"
    elif name in (".", ".."):
        why = "it means a directory"
    elif len(name) > _LONGEST_NAME:
        why = f"it has {len(name)} characters, {_LONGEST_NAME} are the most"
    elif wrong := sorted(set(re.sub(r"[A-Za-z0-9._-]", "", name))):
        why = f"letters, digits, dot, underscore and dash are allowed, not {' '.join(map(repr, wrong))}"
    if why:
        raise KctlError(
            f'a topic cannot be called "{name}": {why}', exit_code=Exit.USAGE, code="INVALID_TOPIC_EXCEPTION"
        )


def parse_placement(text: str) -> list[list[int]]:
    """`0=1,2,3;1=2,3,1`, or Kafka's `1:2:3,2:3:1`."""
    if "=" not in text:
        rows = dict(enumerate(text.split(",")))
        separator = ":"
    else:
        pairs = [part.partition("=") for part in text.split(";") if part.strip()]
        rows = {}
        for number, _, brokers in pairs:
            if (partition := whole_number(number.strip())) is None:
                raise _no_placement(text)
            rows[partition] = brokers
        separator = ","
        if len(rows) < len(pairs):
            raise KctlError(f'"{text}" has a partition twice', exit_code=Exit.USAGE)
    if sorted(rows) != list(range(len(rows))):
        raise KctlError(f'"{text}" leaves out partitions: numbering starts at 0', exit_code=Exit.USAGE)
    try:
        placement = [[int(broker) for broker in rows[number].split(separator)] for number in range(len(rows))]
    except ValueError:
        raise _no_placement(text) from None
    return checked_placement(placement)


def _no_placement(text: str) -> KctlError:
    hint = "write it as '0=1,2,3;1=2,3,1', partition=brokers, the preferred leader first"
    return KctlError(f'"{text}" is not a replica assignment', exit_code=Exit.USAGE, hints=(hint,))


def checked_placement(placement: list[list[int]]) -> list[list[int]]:
    for partition, brokers in enumerate(placement):
        if len(set(brokers)) < len(brokers):
            what = f"partition {partition} has a broker twice: {','.join(map(str, brokers))}"
            raise KctlError(what, exit_code=Exit.USAGE, code="INVALID_REPLICA_ASSIGNMENT")
        if len(brokers) != len(placement[0]):
            what = f"partition {partition} has {len(brokers)} replicas, partition 0 has {len(placement[0])}"
            raise KctlError(what, exit_code=Exit.USAGE, code="INVALID_REPLICA_ASSIGNMENT")
    return placement


def fixed_placement(brokers: Iterable[int], partitions: int, replication: int) -> list[list[int]]:
    """Replica j of partition i on the (i+j)th broker, counted around: the same for every topic, racks aside."""
    ring = sorted(brokers)
    return [[ring[(i + j) % len(ring)] for j in range(replication)] for i in range(partitions)]


def parse_configs(texts: Iterable[str]) -> dict[str, str]:
    """The settings of `--config name=value`."""
    found = {}
    for assignment in parse_assignments(texts):
        if assignment.operation != SET or assignment.value is None:
            what = f"a new topic's {assignment.name} can only be set, with ="
            raise KctlError(what, exit_code=Exit.USAGE)
        found[assignment.name] = without_brackets(assignment.value)
    return found


def own_settings(entries: Iterable[Entry]) -> dict[str, str]:
    """The settings of a topic that make it, or another one, again. Lists of throttled replicas are not among them: they
    are those of a move, and of where the replicas are."""
    return {e.name: e.value for e in entries if e.source == "topic" and e.value is not None and e.name not in LISTS}


# --- a file of topics


def from_document(document: Any, where: str) -> list[Wanted]:
    """Topics of a YAML (or JSON) file: a list of topics, a mapping of names to topics, or either under `topics`."""
    if isinstance(document, dict) and set(document) == {"topics"}:
        document = document["topics"]
    if isinstance(document, dict):
        document = [_named(name, fields, where) for name, fields in document.items()]
    if not isinstance(document, list) or not document:
        hint = "it is a list of topics with name, and perhaps partitions, replication, configs, replicas"
        raise KctlError(f"{where} has no topics", exit_code=Exit.USAGE, hints=(hint,))
    return [_from_fields(item, f"{where}, topic {number}") for number, item in enumerate(document, 1)]


def file_text(topics: Iterable[Wanted]) -> str:
    """The YAML file of these topics, of which `from_document` makes them again."""
    import yaml

    items = [{field: value for field, value in zip(_FIELDS, topic, strict=True) if value} for topic in topics]
    return str(yaml.safe_dump(items, sort_keys=False))


def _named(name: Any, fields: Any, where: str) -> dict[str, Any]:
    if fields is not None and not isinstance(fields, dict):
        hints = (f"there are: {', '.join(_FIELDS[1:])}",)
        raise KctlError(f"{where}: topic {name} must be a mapping of fields", exit_code=Exit.USAGE, hints=hints)
    return {"name": name, **(fields or {})}


def _from_fields(item: Any, where: str) -> Wanted:
    if isinstance(item, str):
        item = {"name": item}
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise KctlError(f"{where} has no name", exit_code=Exit.USAGE)
    for field in item:
        if field not in _FIELDS:
            hints = did_you_mean(str(field), _FIELDS) or (f"there are: {', '.join(_FIELDS)}",)
            raise KctlError(f'{where} has "{field}", which is not a field', exit_code=Exit.USAGE, hints=hints)
    configs = item.get("configs") or {}
    if not isinstance(configs, dict):
        raise KctlError(f"{where}: configs must be a mapping of names to values", exit_code=Exit.USAGE)
    return Wanted(
        item["name"],
        _count(item, "partitions", where),
        _count(item, "replication", where),
        values_in_yaml(configs, where),
        _placement(item.get("replicas"), where),
    )


def _count(item: Mapping[str, Any], field: str, where: str) -> int | None:
    value = item.get(field)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise KctlError(f"{where}: {field} must be a number greater than 0, not {value!r}", exit_code=Exit.USAGE)


def _placement(value: Any, where: str) -> list[list[int]] | None:
    if value is None:
        return None
    rows = [value[number] for number in sorted(value)] if isinstance(value, dict) else value
    if isinstance(value, dict) and sorted(value) != list(range(len(value))):
        raise KctlError(f"{where}: replicas leaves out partitions: numbering starts at 0", exit_code=Exit.USAGE)
    if not isinstance(rows, list) or not all(isinstance(r, list) and all(isinstance(b, int) for b in r) for r in rows):
        raise KctlError(f"{where}: replicas must be a list of brokers for each partition", exit_code=Exit.USAGE)
    return checked_placement(rows)


# --- against what there is


def differences(wanted: Wanted, placement: Sequence[Sequence[int]], configs: Mapping[str, str | None]) -> list[str]:
    """The differences between an existing topic and what was asked for."""
    found = []
    count = len(wanted.placement) if wanted.placement else wanted.partitions
    if count is not None and count != len(placement):
        found.append(f"it has {len(placement)} partitions, not {count}")
    replication = max(map(len, placement), default=0)
    if wanted.placement is None and wanted.replication is not None and wanted.replication != replication:
        found.append(f"its replication is {replication}, not {wanted.replication}")
    if wanted.placement is not None and [list(row) for row in wanted.placement] != [list(row) for row in placement]:
        found.append("its replicas are on other brokers")
    for name, value in wanted.configs.items():
        if configs.get(name) != value:
            now = with_meaning(name, configs.get(name))
            found.append(f"its {name} is {now}, not {with_meaning(name, value)}")
    return found
