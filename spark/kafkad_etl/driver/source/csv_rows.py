"""SQL that finds what is wrong with a line of CSV.

Besides the typed columns, the line is parsed as text only: where only the typed column is NULL, its type is at fault.

Lines are parsed with a delimiter and an empty column after them. To Spark, a quote that is not closed ends with the
line: then it takes them in as well, and a column is missing.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkad_etl.driver.source.json_rows import EXCERPT, NO_COMMA, NO_UTF8, TEXTS, Type, because, ddl, type_name
from kafkad_etl.facts import END_OF_LINE
from kafkad_etl.job import Csv
from kafkad_etl.sql_text import named, quoted

QUOTES = {"escape": '"'}
"""A quote within quotes is doubled, as RFC 4180 says and others do; Spark's own default is a backslash before it."""


def quotes(options: Mapping[str, object]) -> dict[str, str]:
    """The same where the user's options may name another quote. Without one, nothing is quoted."""
    quote = next((str(value) for name, value in options.items() if name.lower() == "quote"), QUOTES["escape"])
    return {"escape": quote} if quote else {}


_END = (END_OF_LINE, "STRING")


class Lines:
    """Lines of CSV in a column of text."""

    def __init__(self, text: str, schema: Type, csv: Csv, delimiter: str) -> None:
        """`delimiter`: what Spark makes of that of `csv`, which may be an escape such as `\\t`."""
        self._text = text
        self._ended = f"concat({text}, {quoted(delimiter)})"
        self._delimiter = delimiter
        self._schema = schema
        self._options = {"sep": csv.delimiter, "nullValue": csv.null, "columnNameOfCorruptRecord": "_corrupt", **QUOTES}

    def parsed(self) -> str:
        typed = [(field["name"], type_name(field["type"])) for field in self._schema["fields"]]
        return self._read(self._ended, [*typed, _END])

    def strings(self) -> str:
        return self._read(self._text, self._as_text())

    def is_broken(self, parsed: str) -> str:
        tests = [f"{self._text} IS NULL", f"trim({self._text}) = ''", f"{parsed}._corrupt IS NOT NULL"]
        tests.append(f"NOT is_valid_utf8({self._text})")
        tests += [f"{parsed}.{named(f['name'])} IS NULL" for f in self._schema["fields"] if not f["nullable"]]
        if decimals := self._decimals():
            tests.append(self._has_comma(decimals))
        return " OR ".join(f"coalesce({test}, false)" for test in tests)

    def _decimals(self) -> list[str]:
        return [
            named(field["name"]) for field in self._schema["fields"] if type_name(field["type"]).startswith("DECIMAL")
        ]

    def _has_comma(self, decimals: list[str]) -> str:
        """SQL that reads a line again if it may have a comma in these columns. As numbers Spark drops it: 12,5 would be
        125."""
        sign = '"' if self._delimiter == "," else ","  # where a comma delimits, one in a column is within quotes
        commas = " OR ".join(f"coalesce(contains({TEXTS}.{column}, ','), false)" for column in decimals)
        return f"contains({self._text}, {quoted(sign)}) AND exists(array({self.strings()}), {TEXTS} -> {commas})"

    def reason(self, parsed: str, strings: str) -> str:
        fields = self._schema["fields"]
        ended = self._read(self._ended, [*self._as_text(), _END])
        cases = [
            (f"{self._text} IS NULL", "''", "'it is null'"),
            (f"trim({self._text}) = ''", "''", "'it is empty'"),
            (f"NOT is_valid_utf8({self._text})", "''", NO_UTF8),
            (f"{strings}._corrupt IS NOT NULL", "''", quoted(f"it does not have {len(fields)} columns")),
            (f"{ended}._corrupt IS NOT NULL", "''", "'its last quote is not closed'"),
        ]
        for field in fields:
            column, name = named(field["name"]), quoted(field["name"])
            shown = f"substring({strings}.{column}, 1, {EXCERPT})"
            why = f"concat('\\'', {shown}, '\\' is not ', {quoted(type_name(field['type']))})"
            cases.append((f"{strings}.{column} IS NOT NULL AND {parsed}.{column} IS NULL", name, why))
            if column in self._decimals():
                cases.append((f"contains({strings}.{column}, ',')", name, NO_COMMA))
            if not field["nullable"]:
                cases.append((f"{parsed}.{column} IS NULL", name, "'it is missing but declared NOT NULL'"))
        whens = " ".join(f"WHEN {test} THEN {because(column, why)}" for test, column, why in cases)
        otherwise = because("''", "'it does not match the schema'")
        return f"CASE {whens} ELSE {otherwise} END"

    def _as_text(self) -> list[tuple[str, str]]:
        return [(field["name"], "STRING") for field in self._schema["fields"]]

    def _read(self, text: str, columns: list[tuple[str, str]]) -> str:
        options = ", ".join(quoted(each) for option in self._options.items() for each in option)
        return f"from_csv({text}, {quoted(ddl(columns))}, map({options}))"
