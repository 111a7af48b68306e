from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from kafkad_etl.driver.sinks.jdbc.sink import Message, connection_options, message_of
from kafkad_etl.job import JdbcSink


class Thrown:
    """A Java exception; its state is that of a java.sql.SQLException."""

    def __init__(self, name: str, text: str, state: str | None = None, cause: Thrown | None = None) -> None:
        self.name = name
        self.getClass = lambda: SimpleNamespace(getName=lambda: name)
        self.getMessage = lambda: text
        self.getSQLState = lambda: state
        self.getCause = lambda: cause
        self.equals = lambda other: other is self


class JavaError(Exception):
    def __init__(self, thrown: Thrown) -> None:
        self.java_exception = thrown


def test_the_password_of_a_database_is_no_part_of_its_url() -> None:
    given = {"url": "jdbc:postgresql://h/d", "table": "t", "user": "u", "password": "secret"}
    options = connection_options(msgspec.convert({**given, "options": {"ssl": True}}, JdbcSink))
    assert options["password"] == "secret"
    assert "secret" not in options["url"]
    assert (options["driver"], options["ssl"]) == ("org.postgresql.Driver", True)


@pytest.mark.parametrize(
    ("name", "text", "state", "retriable"),
    [
        ("org.sqlite.SQLiteException", "[SQLITE_BUSY] The database file is locked", None, True),
        ("org.sqlite.SQLiteException", "[SQLITE_LOCKED] A table in the database is locked", None, True),
        ("org.sqlite.SQLiteException", "[SQLITE_ERROR] SQL error (no such table: orders)", None, False),
        ("org.postgresql.util.PSQLException", "FATAL: the database system is starting up", "57P03", True),
        ("org.postgresql.util.PSQLException", "canceling statement due to lock timeout", "55P03", True),
        ("org.postgresql.util.PSQLException", "value too long for type character varying(20)", "22001", False),
    ],
)
def test_the_database_says_what_is_wrong_and_whether_trying_again_may_help(
    name: str, text: str, state: str | None, retriable: bool
) -> None:
    error = JavaError(Thrown("org.apache.spark.SparkException", "Job aborted", cause=Thrown(name, text, state)))
    assert message_of(error, lambda cause: cause.name == name) == Message(text, retriable)
