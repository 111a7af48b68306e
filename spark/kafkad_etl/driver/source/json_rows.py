"""SQL that finds what is wrong with a JSON value. Only text is built here.

`from_json` turns mismatches into NULL, marks only the whole row as corrupt, and ignores trailing text and unknown
fields. So rows are judged separately; the column at fault is determined only for the few bad ones.

Only texts that `excess` is not sure of are read again, for decimals with a comma, and in mode strict for the names of
their fields.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypeAlias

from kafkad_etl.sql_text import named, quoted

Type: TypeAlias = Any
"""A type as in Spark's JSON schemas: a name, or an object with its own `type`."""

EXCERPT = 60
KEYS, TEXTS = "_keys", "_texts"
"""Names within lambdas: of a text's fields, and of its decimals as they are written."""
MEMBER, ALONE = "_member", "_alone"
"""More of them: of a member's JSON, and of what it is read as without the others."""
TOLERANT = ("allowUnquotedControlChars", "true")
_NUMBERS = ("byte", "short", "integer", "long", "float", "double", "decimal")
NO_UTF8 = "'it is not UTF-8'"
CONTROL = "'it has a control character that is not escaped'"
NO_COMMA = "'a decimal must not contain a comma'"


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
    octets: str
    """The JSON text, as bytes."""
    parsed: str
    """The result of from_json with the schema."""
    excess: str
    """True if the text may have more than the schema allows; only where `is_limited`."""

    @property
    def text(self) -> str:
        return f"CAST({self.octets} AS STRING)"


def _is_not_one_value(columns: Columns) -> str:
    """SQL for texts with more than one value. Where the first brace that closes is the last byte, an object ends there;
    else the text is read once more, in an array."""
    octets, text = columns.octets, columns.text
    before = f"CAST(substring({octets}, 1, octet_length({octets}) - 1) AS STRING)"
    sure = f"endswith({text}, '}}') AND NOT contains({before}, '}}')"
    return f"NOT ({sure}) AND coalesce(json_array_length({_whole(text)}), 0) <> 1"


def _whole(text: str) -> str:
    return f"concat('[', {text}, ']')"


def is_limited(schema: Type, strict: bool) -> bool:
    """Whether a text that from_json takes may have more than the schema allows."""
    return strict or _decimals(schema) is not None


def _exceeds(text: str, schema: Type, strict: bool) -> str:
    """SQL that reads a text again, for decimals with a comma, and in mode strict for fields that the schema does not
    have."""
    tests, decimals = [], _decimals(schema)
    if decimals:
        tests.append(_has_comma(text, decimals, [each for _, each in _commas(TEXTS, decimals)]))
    if strict:
        tests.append(_has_unknown(text, schema))
    return _any(tests)


def _has_unknown(text: str, schema: Type) -> str:
    names = _names(schema)
    tests = [f"{KEYS} IS NULL", f"{KEYS} <> {names} AND size(array_except({KEYS}, {names})) > 0"]
    tests += [
        f"coalesce(size({_unknown(_member(f'try_parse_json({text})', f['name']), f['type'], f['name'])}), 0) > 0"
        for f in schema["fields"]
        if _has_struct(f["type"])
    ]
    return _let(f"json_object_keys({text})", KEYS, _any(tests))


def _let(value: str, name: str, body: str) -> str:
    """SQL that works out a value once, under a name within `body`."""
    return f"transform(array({value}), {name} -> {body})[0]"


def _any(tests: list[str]) -> str:
    """A condition that is never NULL."""
    return " OR ".join(f"coalesce({test}, false)" for test in tests)


def _has_comma(text: str, decimals: Type, conditions: list[str]) -> str:
    """SQL for a comma in decimals as they are written. As numbers from_json drops it: 12,5 would be 125."""
    return _let(f"from_json({text}, {quoted(type_name(decimals))})", TEXTS, _any(conditions))


def _decimals(kind: Type) -> Type:
    """The part of a type that has decimals, as strings; None if there are none."""
    if isinstance(kind, str):
        return "string" if kind.startswith("decimal") else None
    if is_struct(kind):
        fields = [field | {"type": _decimals(field["type"])} for field in kind["fields"]]
        fields = [field for field in fields if field["type"]]
        return {"type": "struct", "fields": fields} if fields else None
    part = "elementType" if kind["type"] == "array" else "valueType"
    inner = _decimals(kind[part])
    return kind | {part: inner} if inner else None


def _commas(value: str, kind: Type, path: str = "") -> list[tuple[str, str]]:
    """For each decimal its path, and a condition for a comma in it."""
    if isinstance(kind, str):
        return [(path, f"contains({value}, ',')")]
    if is_struct(kind):
        prefix = f"{path}." if path else ""
        inside = [_commas(f"{value}.{named(f['name'])}", f["type"], prefix + f["name"]) for f in kind["fields"]]
        return [each for found in inside for each in found]
    is_array, x = kind["type"] == "array", f"x{path.count('[]')}"
    values = value if is_array else f"map_values({value})"
    inner = _commas(x, kind["elementType" if is_array else "valueType"], f"{path}[]")
    return [(at, f"exists({values}, {x} -> {comma})") for at, comma in inner]


_BACKSLASH = r"\\"
"""As JSON escapes it."""
_HALF = r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
"""A surrogate that is escaped without the other one of its pair, in a text without escaped backslashes. Spark makes a
question mark of it."""


def _has_half(text: str) -> str:
    """SQL that looks closer only at texts that escape surrogates."""
    may_have = " OR ".join(f"contains({text}, {quoted(start)})" for start in (r"\ud", r"\uD"))
    unescaped = f"replace({text}, {quoted(_BACKSLASH)}, ' ')"
    return f"({may_have}) AND {_let(unescaped, MEMBER, f'rlike({MEMBER}, {quoted(_HALF)})')}"


def is_broken(columns: Columns, schema: Type, strict: bool) -> str:
    """A condition that is never NULL. Texts are not read again where something cheaper says that nothing is wrong."""
    text, parsed, excess = columns.text, columns.parsed, columns.excess
    tests = [f"{text} IS NULL", f"{parsed}._corrupt IS NOT NULL"]
    tests += [missing for _, missing in _missing(parsed, schema)]
    tests += [_is_not_one_value(columns), f"NOT is_valid_utf8({text})", _has_half(text)]
    if is_limited(schema, strict):
        tests.append(f"{excess} AND ({_exceeds(text, schema, strict)})")
    return _any(tests)


def _missing(value: str, kind: Type, path: str = "") -> list[tuple[str, str]]:
    """For each part that is declared NOT NULL its path, and a condition for what from_json has left NULL all the same.
    A struct that is NULL itself lacks nothing."""
    if isinstance(kind, str):
        return []
    found = []
    if is_struct(kind):
        prefix, there = (f"{path}.", f"{value} IS NOT NULL AND ") if path else ("", "")
        for field in kind["fields"]:
            name, inside = prefix + field["name"], f"{value}.{named(field['name'])}"
            if not field["nullable"]:
                found.append((name, f"{there}{inside} IS NULL"))
            found += _missing(inside, field["type"], name)
        return found
    is_array, x = kind["type"] == "array", f"x{path.count('[]')}"
    values = value if is_array else f"map_values({value})"
    if not kind["containsNull" if is_array else "valueContainsNull"]:
        found.append((f"{path}[]", f"exists({values}, {x} -> {x} IS NULL)"))
    inner = _missing(x, kind["elementType" if is_array else "valueType"], f"{path}[]")
    return found + [(at, f"exists({values}, {x} -> {missing})") for at, missing in inner]


def reason(columns: Columns, schema: Type, strict: bool) -> str:
    """SQL for struct<column, why> of a broken row."""
    text, parsed = columns.text, columns.parsed
    first = [
        (f"{text} IS NULL", "''", "'it is null'"),
        (f"coalesce(json_array_length({_whole(text)}), 0) <> 1", "''", "'it is not one JSON object'"),
        (f"substring(ltrim({text}), 1, 1) <> '{{'", "''", "'it is not a JSON object'"),
        (f"NOT is_valid_utf8({text})", "''", NO_UTF8),
        (_has_half(text), "''", "'it escapes a surrogate (\\\\ud800 to \\\\udfff) without the other one of its pair'"),
        (f"{parsed}._corrupt IS NOT NULL AND {_is_read(text, schema)}", "''", CONTROL),
    ]
    mistyped = [each for field in schema["fields"] for each in _mistyped(text, [field["name"]], field["type"])]
    cases = [(test, quoted(path), "'it is missing but declared NOT NULL'") for path, test in _missing(parsed, schema)]
    for field in schema["fields"]:
        if decimals := _decimals({"type": "struct", "fields": [field]}):
            for path, comma in _commas(TEXTS, decimals):
                cases.append((_has_comma(text, decimals, [comma]), quoted(path), NO_COMMA))
    if strict:
        unknown = f"array_except(json_object_keys({text}), {_names(schema)})"
        cases.append((f"size({unknown}) > 0", f"{unknown}[0]", "'the schema has no such field'"))
        for field in schema["fields"]:
            if _has_struct(field["type"]):
                member = _member(f"try_parse_json({text})", field["name"])
                unknown = _unknown(member, field["type"], field["name"])
                cases.append((f"size({unknown}) > 0", f"{unknown}[0]", "'the schema has no such field'"))
    otherwise = because("''", "'it does not match the schema'")
    return f"coalesce({', '.join([*_case(first), *mistyped, *_case(cases), otherwise])})"


def _case(cases: list[tuple[str, str, str]]) -> list[str]:
    """SQL for struct<column, why> of the first case whose test is true, or NULL."""
    whens = " ".join(f"WHEN {test} THEN {because(column, why)}" for test, column, why in cases)
    return [f"CASE {whens} END"] if cases else []


def _is_read(text: str, schema: Type) -> str:
    """SQL that reads the text again, for control characters that are not escaped."""
    columns = ddl([(field["name"], type_name(field["type"])) for field in schema["fields"]])
    return _let(_read(text, columns, TOLERANT), ALONE, f"{ALONE}._corrupt IS NULL")


def because(column: str, why: str) -> str:
    return f"named_struct('column', {column}, 'why', {why})"


def _mistyped(text: str, path: list[str], kind: Type) -> list[str]:
    """SQL for struct<column, why> of a member that does not fit its column where it stands alone either, or NULL.
    Members of a struct come first, since the innermost is the most specific."""
    if kind == "string":  # which takes anything
        return []
    found = []
    for field in kind["fields"] if is_struct(kind) else ():
        found += _mistyped(text, [*path, field["name"]], field["type"])
    alone = _read(f"concat('{{\"x\":', {MEMBER}, '}}')", ddl([("x", type_name(kind))]))
    fails = _let(alone, ALONE, f"{ALONE}.x IS NULL OR {ALONE}._corrupt IS NOT NULL")
    shown = f"if(length({MEMBER}) > {EXCERPT}, concat(substring({MEMBER}, 1, {EXCERPT}), '…'), {MEMBER})"
    why = because(quoted(".".join(path)), f"concat('\\'', {shown}, '\\' is not ', {quoted(type_name(kind))})")
    judged = f"if({MEMBER} <> 'null' AND {fails}, {why}, NULL)"
    return [*found, _let(_as_written(text, path, kind), MEMBER, judged)]


def _as_written(text: str, path: list[str], kind: Type) -> str:
    """SQL for a member's JSON, with a text's quotation marks and a number's own digits; NULL if there is none."""
    shape = "VARIANT"
    for name in reversed(path[1:]):
        shape = f"STRUCT<{named(name)}: {shape}>"
    variant = ".".join([_read(text, f"{named(path[0])} {shape}", TOLERANT), *map(named, path)])
    value = f"get_json_object({text}, {quoted(_json_path(path))})"
    is_number = isinstance(kind, str) and kind.startswith(_NUMBERS)
    if is_number and re.fullmatch(r"\w+", path[-1]):  # which has no other meaning in a pattern
        number = quoted(rf'"{path[-1]}"\s*:\s*(-?[0-9][0-9.eE+-]*)')
        digits = f"regexp_extract({text}, {number}, 1)"
        value = f"if(try_cast({digits} AS DOUBLE) = try_cast({value} AS DOUBLE), {digits}, {value})"
    return _let(f"to_json({variant})", MEMBER, f"if(startswith({MEMBER}, '\"'), {MEMBER}, {value})")


def _read(text: str, columns: str, options: tuple[str, ...] = ()) -> str:
    options = ("columnNameOfCorruptRecord", "_corrupt", *options)
    return f"from_json({text}, {quoted(columns)}, map({', '.join(map(quoted, options))}))"


def _json_path(names: list[str]) -> str:
    return "$" + "".join(f"['{name}']" for name in names)


def _names(schema: Type) -> str:
    return f"array({', '.join(quoted(f['name']) for f in schema['fields'])})"


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
