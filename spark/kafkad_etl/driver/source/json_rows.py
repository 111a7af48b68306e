"""SQL that finds what is wrong with a JSON value. Only text is built here.

`from_json` turns mismatches into NULL, marks only the whole row as corrupt, and ignores trailing text and unknown
fields. So rows are judged separately; the column at fault is determined only for the few bad ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

Type: TypeAlias = Any
"""A type as in Spark's JSON schemas: a name, or an object with its own `type`."""

EXCERPT = 60


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def named(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def ddl(columns: list[tuple[str, str]]) -> str:
    """DDL including the column that Spark fills for rows that do not match."""
    return ", ".join(f"{named(name)} {kind}" for name, kind in [*columns, ("_corrupt", "STRING")])


def is_struct(kind: Type) -> bool:
    return isinstance(kind, dict) and kind.get("type") == "struct"


def type_name(kind: Type) -> str:
    if isinstance(kind, str):
        return {"long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT"}.get(kind, kind.upper())
    if kind["type"] == "struct":
        return "STRUCT<" + ", ".join(f"{named(f['name'])}: {type_name(f['type'])}" for f in kind["fields"]) + ">"
    if kind["type"] == "array":
        return f"ARRAY<{type_name(kind['elementType'])}>"
    return f"MAP<{type_name(kind['keyType'])}, {type_name(kind['valueType'])}>"


class Columns(NamedTuple):
    text: str
    """The JSON text."""
    parsed: str
    """The result of from_json with the schema."""
    keys: str
    """The names of the text's fields, only in strict mode; NULL if it does not begin with an object."""


def _is_not_one_value(text: str) -> str:
    """SQL for texts with more than one value. Where the first brace that closes is the last byte, an object ends there;
    else the text is read once more, in an array."""
    up_to_brace = f"octet_length(substring_index({text}, '}}', 1))"
    return f"{up_to_brace} <> octet_length({text}) - 1 AND coalesce(json_array_length({_whole(text)}), 0) <> 1"


def _whole(text: str) -> str:
    return f"concat('[', {text}, ']')"


def keys_of(text: str) -> str:
    return f"json_object_keys({text})"


def is_broken(columns: Columns, schema: Type, strict: bool) -> str:
    """A condition that is never NULL. Texts are not read again where something cheaper says that nothing is wrong."""
    text, parsed, keys = columns
    tests = [f"{text} IS NULL", f"{parsed}._corrupt IS NOT NULL"]
    tests += [f"{parsed}.{path} IS NULL" for path in required(schema)]
    tests.append(_is_not_one_value(text))
    if strict:
        variant = f"try_parse_json({text})"
        tests.insert(1, f"{keys} IS NULL")
        tests.append(f"{keys} <> {_names(schema)} AND size(array_except({keys}, {_names(schema)})) > 0")
        tests += _commas(text, keys, schema)
        tests += [
            f"coalesce(size({_unknown(_member(variant, f['name']), f['type'], f['name'])}), 0) > 0"
            for f in schema["fields"]
            if _has_struct(f["type"])
        ]
    return " OR ".join(f"coalesce({test}, false)" for test in tests)


def _commas(text: str, keys: str, schema: Type) -> list[str]:
    """SQL for decimals with a comma. The text can only have one if there are more commas than those between fields, or
    escapes."""
    decimals = [named(name) for name in _decimals(schema)]
    if not decimals:
        return []
    texts = f"from_json({text}, {quoted(', '.join(f'{name} STRING' for name in decimals))})"
    found = " OR ".join(f"coalesce(contains({texts}.{name}, ','), false)" for name in decimals)
    commas = f"octet_length({text}) - octet_length(replace({text}, ',', ''))"
    return [f"({commas} >= size({keys}) OR contains({text}, '\\\\')) AND ({found})"]


def required(schema: Type) -> list[str]:
    """NOT NULL columns, which from_json leaves NULL all the same."""
    return [named(f["name"]) for f in schema["fields"] if not f["nullable"]]


def reason(columns: Columns, schema: Type, strict: bool) -> str:
    """SQL for struct<column, why> of a broken row."""
    text, parsed, _ = columns
    cases = [
        (f"{text} IS NULL", "''", "'it is null'"),
        (f"coalesce(json_array_length({_whole(text)}), 0) <> 1", "''", "'it is not one JSON object'"),
        (f"substring(ltrim({text}), 1, 1) <> '{{'", "''", "'it is not a JSON object'"),
    ]
    for field in schema["fields"]:
        cases += _mistyped(text, parsed, field["name"], field["type"])
    for field in schema["fields"]:
        if not field["nullable"]:
            column = named(field["name"])
            cases.append((f"{parsed}.{column} IS NULL", quoted(field["name"]), "'it is missing but declared NOT NULL'"))
    if strict:
        for name in _decimals(schema):
            comma = f"contains(get_json_object({text}, {quoted(_json_path([name]))}), ',')"
            cases.append((comma, quoted(name), "'a decimal must not contain a comma'"))
        unknown = f"array_except(json_object_keys({text}), {_names(schema)})"
        cases.append((f"size({unknown}) > 0", f"{unknown}[0]", "'the schema has no such field'"))
        for field in schema["fields"]:
            if _has_struct(field["type"]):
                member = _member(f"try_parse_json({text})", field["name"])
                unknown = _unknown(member, field["type"], field["name"])
                cases.append((f"size({unknown}) > 0", f"{unknown}[0]", "'the schema has no such field'"))
    whens = " ".join(f"WHEN {test} THEN {because(column, why)}" for test, column, why in cases)
    otherwise = because("''", "'it does not match the schema'")
    return f"CASE {whens} ELSE {otherwise} END"


def because(column: str, why: str) -> str:
    return f"named_struct('column', {column}, 'why', {why})"


def _mistyped(text: str, parsed: str, name: str, kind: Type) -> list[tuple[str, str, str]]:
    """Cases for a column of the wrong type. Members of a struct come first, since the innermost is the most
    specific."""
    return _mistyped_at(
        f"get_json_object({text}, {quoted(_json_path([name]))})", f"{parsed}.{named(name)}", [name], kind, text
    )


def _mistyped_at(raw: str, value: str, path: list[str], kind: Type, text: str) -> list[tuple[str, str, str]]:
    cases = []
    if is_struct(kind):
        for field in kind["fields"]:
            inner = [*path, field["name"]]
            raw_inner = f"get_json_object({text}, {quoted(_json_path(inner))})"
            cases += _mistyped_at(raw_inner, f"{value}.{named(field['name'])}", inner, field["type"], text)
    shown = f"if(length({raw}) > {EXCERPT}, concat(substring({raw}, 1, {EXCERPT}), '…'), {raw})"
    why = f"concat('\\'', {shown}, '\\' is not ', {quoted(type_name(kind))})"
    broken = f"{raw} IS NOT NULL AND {value} IS NULL"
    if isinstance(kind, dict) and not is_struct(kind):  # the array is there, without what did not fit
        alone = f"concat('{{\"x\":', {raw}, '}}')"
        broken += (
            f" OR from_json({alone}, {quoted(f'x {type_name(kind)}, _corrupt STRING')}, "
            f"map('columnNameOfCorruptRecord', '_corrupt'))._corrupt IS NOT NULL"
        )
    cases.append((f"coalesce({broken}, false)", quoted(".".join(path)), why))
    return cases


def _json_path(names: list[str]) -> str:
    return "$" + "".join(f"['{name}']" for name in names)


def _names(schema: Type) -> str:
    return f"array({', '.join(quoted(f['name']) for f in schema['fields'])})"


def _decimals(schema: Type) -> list[str]:
    """Decimal columns. from_json drops commas from them: 12,5 would be 125."""
    return [f["name"] for f in schema["fields"] if isinstance(f["type"], str) and f["type"].startswith("decimal")]


def _has_struct(kind: Type) -> bool:
    if isinstance(kind, str):
        return False
    if kind["type"] == "array":
        return _has_struct(kind["elementType"])
    if kind["type"] == "map":
        return _has_struct(kind["valueType"])
    return is_struct(kind)


def _member(variant: str, name: str) -> str:
    return f"try_cast({variant} AS MAP<STRING, VARIANT>)[{quoted(name)}]"


def _unknown(variant: str, kind: Type, path: str) -> str:
    """SQL for an array with the paths of unknown fields."""
    if is_struct(kind):
        members = f"try_cast({variant} AS MAP<STRING, VARIANT>)"
        here = f"array_except(map_keys({members}), {_names(kind)})"
        found = [f"transform({here}, k -> concat({quoted(path + '.')}, k))"]
        found += [
            _unknown(f"{members}[{quoted(f['name'])}]", f["type"], f"{path}.{f['name']}")
            for f in kind["fields"]
            if _has_struct(f["type"])
        ]
        present = [f"coalesce({each}, array())" for each in found]
        return f"concat({', '.join(present)})"
    if kind["type"] == "array":
        inner, elements = kind["elementType"], f"try_cast({variant} AS ARRAY<VARIANT>)"
    else:
        inner, elements = kind["valueType"], f"map_values(try_cast({variant} AS MAP<STRING, VARIANT>))"
    x = f"x{path.count('.') + path.count('[]')}"
    return f"flatten(transform({elements}, {x} -> coalesce({_unknown(x, inner, path + '[]')}, array())))"
