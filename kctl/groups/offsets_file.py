"""Offsets in files: Kafka's CSV (topic,partition,offset, the group first where there are several), and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kafkad.names import TopicPartition
from kctl.errors import Exit, KctlError
from kctl.texts.documents import read_json
from kctl.texts.parsing import whole_number
from kctl.texts.text_files import save_new


class FileOffset(NamedTuple):
    """`group` is empty where the file does not say it."""

    group: str
    where: TopicPartition
    offset: int


def parse_offsets(text: str, name: str) -> list[FileOffset]:
    """KctlError, with the line, for what makes no sense."""
    found = list(_from_json(text, name) if text.lstrip()[:1] in ("[", "{") else _from_csv(text, name))
    if not found:
        raise _bad(name, "has no offsets")
    if len({offset.group == "" for offset in found}) > 1:
        raise _bad(name, "names a group in some lines only")
    seen: set[tuple[str, TopicPartition]] = set()
    for one in found:
        if one[:2] in seen:
            raise _bad(name, f"has {one.where} twice{f' for group {one.group}' if one.group else ''}")
        seen.add(one[:2])
    return found


def _bad(name: str, what: str) -> KctlError:
    hints = ("write lines of topic,partition,offset, or of group,topic,partition,offset",)
    return KctlError(f"{name} {what}", exit_code=Exit.USAGE, hints=hints)


def _from_csv(text: str, name: str) -> Iterator[FileOffset]:
    import csv
    import io

    lines = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    for fields in lines:
        if not fields or fields[-3:] == ["topic", "partition", "offset"]:
            continue
        group = fields.pop(0) if len(fields) == 4 else ""
        numbers = [number for field in fields[1:] if (number := whole_number(field.strip())) is not None]
        if len(fields) != 3 or len(numbers) != 2:
            raise _bad(name, f"line {lines.line_num} is not topic,partition,offset")
        yield FileOffset(group, TopicPartition(fields[0], numbers[0]), numbers[1])


def _from_json(text: str, name: str) -> Iterator[FileOffset]:
    try:
        whole = read_json(text)
    except ValueError as error:
        raise _bad(name, f"is not JSON: {error}") from None
    items = whole.get("items", []) if isinstance(whole, dict) else whole
    for at, item in enumerate(items, 1):
        try:
            yield from _item(item)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
            raise _bad(name, f"entry {at} has no topic, partition and offset") from None


def _item(item: dict[str, Any]) -> Iterator[FileOffset]:
    """Of `groups export` or `reset-offsets`, or a group of `describe` with its offsets."""
    if "offsets" in item:
        for one in item["offsets"]:
            if one["committed"] is not None:
                yield FileOffset(item["group"], TopicPartition(one["topic"], int(one["partition"])), one["committed"])
        return
    offset = next((item[field] for field in ("offset", "new", "committed") if field in item), -1)
    if offset is None:  # a partition that is only owned, or assigned
        return
    if offset < 0 or not isinstance(item["topic"], str):
        raise ValueError
    yield FileOffset(item.get("group") or "", TopicPartition(item["topic"], int(item["partition"])), int(offset))


def csv_text(offsets: Iterable[FileOffset], *, of_one: bool) -> str:
    """As Kafka's tool writes it and reads it. `of_one`: of one group that was named, so that no line has to say whose
    offset it is; of several that were asked for perhaps one alone has any. Names that would be read as something else
    are in quotes: csv itself has an eye for line feeds alone."""
    import csv
    import io

    text = io.StringIO()
    plain, quoting = (
        csv.writer(text, lineterminator="\n", quoting=how) for how in (csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC)
    )
    for group, where, offset in offsets:
        names = [where.topic] if of_one else [group, where.topic]
        is_plain = all(name.isprintable() and not name.startswith((" ", "[", "{")) for name in names)
        (plain if is_plain else quoting).writerow([*names, where.partition, offset])
    return text.getvalue()


def save_offsets(directory: Path, before: Mapping[str, Mapping[TopicPartition, int]]) -> Path | None:
    """The offsets of these groups, in a new file that reset-offsets takes; None where there are none. KctlError if they
    cannot be saved."""
    lines = [
        FileOffset(name, where, offset) for name, offsets in before.items() for where, offset in sorted(offsets.items())
    ]
    return save_new(directory, before, "groups", ".csv", csv_text(lines, of_one=len(before) == 1)) if lines else None
