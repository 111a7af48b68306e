from __future__ import annotations

import msgspec

from kafkad_etl.driver.sinks.jdbc.sink import connection_options
from kafkad_etl.job import JdbcSink


def test_the_password_of_a_database_is_no_part_of_its_url() -> None:
    given = {"url": "jdbc:postgresql://h/d", "table": "t", "user": "u", "password": "secret"}
    options = connection_options(msgspec.convert({**given, "options": {"ssl": True}}, JdbcSink))
    assert options["password"] == "secret"
    assert "secret" not in options["url"]
    assert (options["driver"], options["ssl"]) == ("org.postgresql.Driver", True)
