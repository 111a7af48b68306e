"""Writes the tables of job file keys and of cases' keys, built from the types of `job` and `cases`, between marks in
docs/etl.md. A test compares the two.

Usage: `python -m kafkad_etl.model.reference docs/etl.md`
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from kafkad_etl.job import Job
from kafkad_etl.model.cases import CaseFile

_TABLES: dict[str, type[msgspec.Struct]] = {
    "<!-- made by make docs from kafkad_etl/job.py -->\n": Job,
    "<!-- made by make docs from kafkad_etl/model/cases.py -->\n": CaseFile,
}
_END = "<!-- end of what make docs makes -->\n"
_SIMPLE: dict[type, str] = {
    inspect.StrType: "text",
    inspect.IntType: "whole number",
    inspect.FloatType: "number",
    inspect.BoolType: "true or false",
    inspect.AnyType: "any value",
    inspect.NoneType: "nothing",
}


def updated(page: str) -> str:
    for mark, kind in _TABLES.items():
        before, begin, rest = page.partition(mark)
        _, end, after = rest.partition(_END)
        page = "".join((before, begin, "\n", "\n".join(_lines(kind)), "\n\n", end, after))
    return page


def _lines(file: type[msgspec.Struct]) -> Iterator[str]:
    blocks: dict[str, tuple[inspect.StructType, list[str]]] = {}
    _collect(msgspec.inspect.type_info(file), "", blocks)
    for number, (block, paths) in enumerate(blocks.values()):
        title = ", ".join(f"`{path}`" for path in sorted(paths, key=len)) if paths != [""] else "The file"
        yield f"{'' if number == 0 else chr(10)}### {title}\n"
        yield "| key | value | default | |\n|---|---|---|---|"
        for field in block.fields:
            yield f"| `{field.name}` | {_value(field.type)} | {_default(field)} | {_meaning(field)} |"


def _collect(kind: inspect.Type, path: str, blocks: dict[str, tuple[inspect.StructType, list[str]]]) -> None:
    """Collects blocks in the order of the file; a block that several keys share appears once."""
    kind = _bare(kind)
    if isinstance(kind, inspect.UnionType):
        for alternative in kind.types:
            _collect(alternative, path, blocks)
    elif isinstance(kind, inspect.DictType):
        _collect(kind.value_type, f"{path}.<name>", blocks)
    elif isinstance(kind, inspect.VarTupleType):
        _collect(kind.item_type, f"{path}[]", blocks)
    elif isinstance(kind, inspect.StructType):
        name = kind.cls.__name__
        blocks.setdefault(name, (kind, []))[1].append(path)
        for field in kind.fields:
            _collect(field.type, f"{path}.{field.name}".lstrip("."), blocks)


def _bare(kind: inspect.Type) -> inspect.Type:
    return _bare(kind.type) if isinstance(kind, inspect.Metadata) else kind


def _value(kind: inspect.Type) -> str:
    kind = _bare(kind)
    match kind:
        case inspect.UnionType():
            named = [_value(one) for one in kind.types if not isinstance(_bare(one), inspect.NoneType)]
            return "text, number, true or false" if len(named) == 4 else " or ".join(named)
        case inspect.LiteralType():
            return ", ".join(f"`{_shown(value)}`" for value in kind.values if value != "")
        case inspect.VarTupleType():
            item = _bare(kind.item_type)
            return f"list of {'block' if isinstance(item, inspect.DictType) else _value(item)}s"
        case inspect.DictType():
            return f"block: name to {_value(kind.value_type)}"
        case inspect.StructType():
            return "block"
    return _SIMPLE[type(kind)]


def _default(field: inspect.Field) -> str:
    if field.required:
        return "required"
    value: Any = field.default
    if value in ("", (), None) or value is msgspec.NODEFAULT or isinstance(value, msgspec.Struct):
        return ""
    return f"`{_shown(value)}`"


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _meaning(field: inspect.Field) -> str:
    described = field.type.extra_json_schema if isinstance(field.type, inspect.Metadata) else None
    return str((described or {}).get("description", "")).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(updated(document.read_text(encoding="utf-8")), encoding="utf-8")
