"""Builds the SQL for sink `jdbc` and checks whether a result fits a table, without a database."""

from __future__ import annotations

import re
import zlib
from typing import NamedTuple

from kafkad_etl.driver.terms import BatchId
from kafkad_etl.facts import POSITION
from kafkad_etl.job import JdbcSink as Settings
from kafkad_etl.messages import Failed

OFFSETS = "kafkad_etl_offsets"


class Dialect(NamedTuple):
    driver: str = ""
    """The driver's class, since the JVM only discovers drivers on its own class path."""
    quote: str = '"'
    upserts: bool = False
    """True if ON CONFLICT is known to work and tested."""
    staging: str = ""
    """Statement that creates a table of the same types; without it, Spark chooses the types."""
    times_as_text: bool = False
    one_writer: bool = False
    whole_number: str = "BIGINT"
    """A type for numbers of 64 bits."""
    no_topic: str = ""
    """What notes of a batch without offsets have for the topic."""


DIALECTS = {
    "sqlite": Dialect("org.sqlite.JDBC", upserts=True, times_as_text=True, one_writer=True),
    "postgresql": Dialect(
        "org.postgresql.Driver",
        upserts=True,
        staging="CREATE UNLOGGED TABLE {staging} AS SELECT {columns} FROM {table} WITH NO DATA",
    ),
    "mysql": Dialect("com.mysql.cj.jdbc.Driver", quote="`"),
    "mariadb": Dialect("org.mariadb.jdbc.Driver", quote="`"),
    "sqlserver": Dialect("com.microsoft.sqlserver.jdbc.SQLServerDriver"),
    "oracle": Dialect("oracle.jdbc.OracleDriver", whole_number="NUMBER(19)", no_topic=" "),
    "db2": Dialect("com.ibm.db2.jcc.DB2Driver"),
    "h2": Dialect("org.h2.Driver"),
}


class Column(NamedTuple):
    name: str
    kind: str
    """The type's name in the database."""
    code: int
    """The type's code in java.sql.Types."""


class Table(NamedTuple):
    sql: str
    """Its name as statements have it."""
    columns: tuple[Column, ...]


def product(url: str) -> str:
    return url.removeprefix("jdbc:").partition(":")[0]


def dialect_of(url: str) -> Dialect:
    return DIALECTS.get(product(url), Dialect())


def quoted(dialect: Dialect, name: str) -> str:
    quote = dialect.quote
    return f"{quote}{name.replace(quote, quote * 2)}{quote}"


def spellings(dialect: Dialect, table: str) -> list[str]:
    """The table's name as statements may need it: as given, if it is a plain name, so that the database resolves it
    as in any SQL; then quoted, for reserved words and other names."""
    part = r'(?:\w+|"[^"]+"|`[^`]+`)'
    found = [table] if re.fullmatch(rf"{part}(?:\.{part})*", table) else []
    return [*found, ".".join(quoted(dialect, name.strip('"`')) for name in table.split("."))]


def beside(dialect: Dialect, table: str, name: str) -> str:
    """The name of another table in the same schema as `table`."""
    schema = re.match(r'(.*\.)(?:\w+|"[^"]+"|`[^`]+`)$', table)
    return (schema[1] if schema else "") + quoted(dialect, name)


def staging_name(job: str, owner: str) -> str:
    return f"kafkad_etl_staging_{zlib.crc32(f'{job} {owner}'.encode()):08x}"


def mapped(columns: list[tuple[str, str]], table: Table) -> dict[str, Column] | list[str]:
    """The result's columns mapped to the table's, matched by name, then ignoring case; or the names missing in the
    table. A row's position is written only if the table has columns for it."""
    exact = {column.name: column for column in table.columns}
    folded = {column.name.lower(): column for column in table.columns}
    found = {name: exact.get(name) or folded.get(name.lower()) for name, _ in columns}
    missing = [name for name, column in found.items() if column is None and name not in POSITION]
    return missing or {name: column for name, column in found.items() if column is not None}


FAMILIES = {
    "number": (-6, 5, 4, -5, 6, 7, 8, 2, 3),
    "boolean": (-7, 16),
    "text": (1, 12, -1, -15, -9, -16, 2005, 2011),
    "time": (91, 92, 93, 2013, 2014),
    "bytes": (-2, -3, -4, 2004),
    "array": (2003,),
}
FITS = {
    "number": {"number", "text"},
    "boolean": {"boolean", "text"},
    "text": {"text", "time", "other"},
    "time": {"time", "text"},
    "bytes": {"bytes"},
    "array": {"array"},
}


def family_of_spark(kind: str) -> str:
    if kind in ("tinyint", "smallint", "int", "bigint", "float", "double") or kind.startswith("decimal"):
        return "number"
    if kind == "string" or kind.startswith(("char", "varchar")):
        return "text"
    if kind.startswith("array"):
        return "array"
    return {"boolean": "boolean", "binary": "bytes", "date": "time", "timestamp": "time", "timestamp_ntz": "time"}.get(
        kind, "nested"
    )


def fits(kind: str, column: Column, url: str) -> bool:
    family = next((name for name, codes in FAMILIES.items() if column.code in codes), "other")
    own = family_of_spark(kind)
    if product(url) == "sqlite":
        return own not in ("array", "nested") and (
            not column.kind or family in FITS[own] | {"other"} or (own, family) == ("boolean", "number")
        )
    return family in FITS.get(own, set())


def mistake(settings: Settings, columns: list[tuple[str, str]], table: Table) -> Failed | None:
    has = ", ".join(f"{column.name} {column.kind}".strip() for column in table.columns)
    found = mapped(columns, table)
    if isinstance(found, list):
        text = f"{settings.table} has no column {', '.join(found)}: it has {has}"
        return Failed(kind="schema", text=text, hints=["name the columns in the SQL as in the table"])
    wrong = [
        f"{name} is {kind}, and {settings.table}.{found[name].name} {found[name].kind}"
        for name, kind in columns
        if name in found and not fits(kind, found[name], settings.url)
    ]
    if wrong:
        hints = ["use CAST(column AS type) in the SQL, or to_json(column) for nested types"]
        return Failed(kind="schema", text="; ".join(wrong), hints=hints)
    return _key_mistake(settings, columns)


def _key_mistake(settings: Settings, columns: list[tuple[str, str]]) -> Failed | None:
    if settings.mode != "upsert":
        return None
    if not dialect_of(settings.url).upserts:
        known = [name for name, dialect in DIALECTS.items() if dialect.upserts]
        text = f"sink.jdbc.mode upsert is supported for {' and '.join(known)}, not for {product(settings.url)}"
        return Failed(kind="sink", text=text, hints=["mode: append works with any database that has transactions"])
    names = [name for name, _ in columns]
    missing = [key for key in settings.keys if key not in names]
    if not settings.keys or missing:
        text = f"sink.jdbc.keys: the result has no column {missing[0]}" if missing else "upsert needs sink.jdbc.keys"
        return Failed(kind="schema", text=f"{text}; it has {', '.join(names)}")
    return None


class Statements(NamedTuple):
    """The statements of one sink."""

    create_staging: str
    """Empty if Spark creates it."""
    drop_staging: str
    count_staging: str
    insert: str
    explain: str
    """upsert: checks that the table has the unique index, without writing."""
    doubled: str
    """upsert: keys that occur more than once in staging."""
    create_offsets: str
    find_batch: str
    mark_batch: str
    forget_batches: str


def statements(settings: Settings, table: Table, staging: str, offsets: str, written: list[str]) -> Statements:
    """Builds the statements. `staging` and `offsets` are quoted names; `written` are the table's column names."""
    dialect = dialect_of(settings.url)
    names = ", ".join(quoted(dialect, name) for name in written)
    keys = [quoted(dialect, key) for key in _keys(settings, table)]
    replaces = ", ".join(
        f"{name} = excluded.{name}" for name in (quoted(dialect, it) for it in written) if name not in keys
    )
    conflict = f" ON CONFLICT ({', '.join(keys)}) DO " + (f"UPDATE SET {replaces}" if replaces else "NOTHING")
    upsert = conflict if settings.mode == "upsert" else ""
    insert = f"INSERT INTO {table.sql} ({names}) SELECT {names} FROM {{}} WHERE {{}}{upsert}"
    return Statements(
        create_staging=dialect.staging.format(staging=staging, columns=names, table=table.sql),
        drop_staging=f"DROP TABLE {staging}",
        count_staging=f"SELECT count(*) FROM {staging}",
        insert=insert.format(staging, "1 = 1"),
        explain="EXPLAIN " + insert.format(table.sql, "1 = 0"),
        doubled=f"SELECT {', '.join(keys)}, count(*) FROM {staging} GROUP BY {', '.join(keys)} HAVING count(*) > 1",
        **_offset_statements(dialect, offsets),
    )


def _keys(settings: Settings, table: Table) -> list[str]:
    folded = {column.name.lower(): column.name for column in table.columns}
    exact = {column.name for column in table.columns}
    return [key if key in exact else folded[key.lower()] for key in settings.keys]


def _offset_statements(dialect: Dialect, offsets: str) -> dict[str, str]:
    types = {
        "job": "VARCHAR(64)",
        "checkpoint": "VARCHAR(64)",
        "batch": dialect.whole_number,
        "topic": "VARCHAR(249)",
        "topic_partition": "INTEGER",
        "next_offset": dialect.whole_number,
        "written_rows": dialect.whole_number,
    }
    quotes = {name: quoted(dialect, name) for name in types}
    columns = ", ".join(f"{quotes[name]} {kind} NOT NULL" for name, kind in types.items())
    key = ", ".join(quotes[name] for name in ("job", "checkpoint", "batch", "topic", "topic_partition"))
    ours = f"{quotes['job']} = ? AND {quotes['checkpoint']} = ? AND {quotes['batch']}"
    read = ", ".join(quotes[name] for name in ("batch", "topic", "topic_partition", "next_offset", "written_rows"))
    return {
        "create_offsets": f"CREATE TABLE {offsets} ({columns}, PRIMARY KEY ({key}))",
        "find_batch": f"SELECT {read} FROM {offsets} WHERE {ours} >= ?",
        "mark_batch": f"INSERT INTO {offsets} ({', '.join(quotes.values())}) VALUES ({', '.join('?' for _ in types)})",
        "forget_batches": f"DELETE FROM {offsets} WHERE {ours} < ?",
    }


def marks(dialect: Dialect, job: str, batch: BatchId, rows: int) -> list[tuple[str, str, int, str, int, int, int]]:
    """Rows for `kafkad_etl_offsets`: one per partition, or a single one if there are none."""
    ends = [
        (topic, partition, end)
        for topic, partitions in sorted(batch.end.items())
        for partition, end in sorted(partitions.items())
    ]
    return [(job, batch.checkpoint_id, batch.number, *end, rows) for end in ends or [(dialect.no_topic, 0, 0)]]
