"""SQL that finds what is wrong with a line of CSV.

Besides the typed columns, the line is parsed as text only: where only the typed column is NULL, its type is at fault.
"""

from __future__ import annotations

from kafkad_etl.driver.source.json_rows import EXCERPT, Type, because, ddl, named, quoted, required, type_name


def as_text(schema: Type) -> str:
    return ddl([(field["name"], "STRING") for field in schema["fields"]])


def typed(schema: Type) -> str:
    return ddl([(field["name"], type_name(field["type"])) for field in schema["fields"]])


def is_broken(text: str, parsed: str, schema: Type) -> str:
    tests = [f"{text} IS NULL", f"trim({text}) = ''", f"{parsed}._corrupt IS NOT NULL"]
    tests += [f"{parsed}.{column} IS NULL" for column in required(schema)]
    return " OR ".join(f"coalesce({test}, false)" for test in tests)


def reason(text: str, parsed: str, strings: str, schema: Type) -> str:
    cases = [
        (f"{text} IS NULL", "''", "'it is null'"),
        (f"trim({text}) = ''", "''", "'it is empty'"),
        (f"{strings}._corrupt IS NOT NULL", "''", quoted(f"it does not have {len(schema['fields'])} columns")),
    ]
    for field in schema["fields"]:
        column, name = named(field["name"]), quoted(field["name"])
        shown = f"substring({strings}.{column}, 1, {EXCERPT})"
        why = f"concat('\\'', {shown}, '\\' is not ', {quoted(type_name(field['type']))})"
        cases.append((f"{strings}.{column} IS NOT NULL AND {parsed}.{column} IS NULL", name, why))
        if not field["nullable"]:
            cases.append((f"{parsed}.{column} IS NULL", name, "'it is missing but declared NOT NULL'"))
    whens = " ".join(f"WHEN {test} THEN {because(column, why)}" for test, column, why in cases)
    otherwise = because("''", "'it does not match the schema'")
    return f"CASE {whens} ELSE {otherwise} END"
