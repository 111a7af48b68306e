"""Sink `jdbc`: a database table, written exactly once as described in `loads`.

upsert: a row replaces the one with the same keys. If a batch has several rows with the same keys, the one with the
highest `_offset` wins if the result has that column (written only if the table has it too); otherwise the batch is
refused, since the newest row is unknown. SQLite: dates and times are written as text, as its own functions expect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kafkad_etl.driver.counting import counted
from kafkad_etl.driver.failures import failure_of
from kafkad_etl.driver.sinks.jdbc.loads import Database, DatabaseError, Loads
from kafkad_etl.driver.sinks.jdbc.statements import Column, dialect_of, family_of_spark, product
from kafkad_etl.driver.sinks.newest import last_of_each_key
from kafkad_etl.driver.sinks.text_formats import column
from kafkad_etl.driver.terms import BatchId, DataFrame, JobFailed, Written
from kafkad_etl.job import JdbcSink as Settings
from kafkad_etl.messages import Failed, Plan

PASSING = ("08", "40", "53", "55P03", "57")
"""SQLSTATE classes of transient errors: connection, conflict, lack of resources, locks, shutdown."""
WRITERS = 8


class Message(NamedTuple):
    """What a database says of an error."""

    text: str
    retriable: bool


class JdbcSink:
    def __init__(self, spark: Any, plan: Plan, settings: Settings) -> None:
        self._spark = spark
        self._settings = settings
        self._dialect = dialect_of(settings.url)
        self._options = connection_options(settings)
        noted = plan.mode != "batch"
        self._loads = Loads(settings, plan.job.name, plan.owner, self._connect, noted=noted)

    def prepare(self, columns: list[tuple[str, str]]) -> None:
        if product(self._settings.url) == "sqlite" and not self._spark.sparkContext.master.startswith("local"):
            raise JobFailed(Failed(kind="sink", text="SQLite is a local file: spark.master must be local[*]"))
        with self._reporting_errors():
            self._loads.prepare(columns)

    def finished(self, batch: BatchId) -> Written | None:
        with self._reporting_errors():
            return self._loads.finished(batch)

    def write(self, rows: DataFrame, batch: BatchId) -> Written:
        with self._reporting_errors():
            return self._loads.write(batch, lambda: self._fill(rows))

    def _fill(self, rows: DataFrame) -> int:
        if self._settings.mode == "upsert":
            rows = last_of_each_key(rows, self._settings.keys)
        rows = rows.select(*(self._column(name, kind) for name, kind in rows.dtypes if name in self._loads.written))
        filling = counted(rows.coalesce(1 if self._dialect.one_writer else WRITERS))
        options = {"batchsize": self._settings.batch, **self._options, "dbtable": self._loads.staging}
        filling.rows.write.format("jdbc").mode("append").options(**options).save()
        return filling.total()

    def _column(self, name: str, kind: str) -> Any:
        as_text = self._dialect.times_as_text and family_of_spark(kind) == "time"
        value = column(name).cast("string") if as_text else column(name)
        return value.alias(self._loads.written[name])

    @contextmanager
    def _connect(self) -> Iterator[Database]:
        jvm = self._spark._jvm
        options = jvm.java.util.HashMap()
        for name, value in {**self._options, "dbtable": "none"}.items():
            options.put(name, str(value))
        scala = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(options)
        jdbc = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(scala)
        dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self._settings.url)
        connection = dialect.createConnectionFactory(jdbc).apply(-1)
        try:
            yield JdbcDatabase(connection, self._message)
        finally:
            connection.close()

    @contextmanager
    def _reporting_errors(self) -> Iterator[None]:
        """Reports database errors under the table's name, without Java's stack trace."""
        from py4j.protocol import Py4JJavaError

        try:
            yield
        except (DatabaseError, Py4JJavaError) as error:
            java = error.__cause__ if isinstance(error, DatabaseError) else error
            found = self._message(java)
            if "ClassNotFoundException" in str(java) or "No suitable driver" in found.text:
                raise JobFailed(no_driver(self._settings, self._dialect.driver)) from error
            raise JobFailed(
                Failed(
                    kind="sink",
                    text=f"table {self._settings.table}: {found.text}",
                    retriable=found.retriable,
                    trace=str(java),
                )
            ) from error

    def _message(self, error: Any) -> Message:
        from py4j.java_gateway import is_instance_of

        gateway = self._spark.sparkContext._gateway
        return message_of(error, lambda cause: bool(is_instance_of(gateway, cause, "java.sql.SQLException")))


class JdbcDatabase:
    """A java.sql.Connection."""

    def __init__(self, connection: Any, message: Callable[[Any], Message]) -> None:
        self._connection = connection
        self._message = message

    def columns(self, table: str) -> tuple[Column, ...]:
        def read(statement: Any) -> tuple[Column, ...]:
            found = statement.executeQuery().getMetaData()
            return tuple(
                Column(found.getColumnName(it), found.getColumnTypeName(it) or "", found.getColumnType(it))
                for it in range(1, found.getColumnCount() + 1)
            )

        return tuple(self._run(f"SELECT * FROM {table} WHERE 1 = 0", (), read))

    def execute(self, sql: str, *values: str | int) -> int:
        return int(self._run(sql, values, lambda statement: statement.executeUpdate()))

    def query(self, sql: str, *values: str | int) -> list[tuple[Any, ...]]:
        def read(statement: Any) -> list[tuple[Any, ...]]:
            result = statement.executeQuery()
            width = result.getMetaData().getColumnCount()
            lines = []
            while result.next():
                lines.append(tuple(result.getObject(it) for it in range(1, width + 1)))
            return lines

        return list(self._run(sql, values, read))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._connection.setAutoCommit(False)
        try:
            yield
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        finally:
            self._connection.setAutoCommit(True)

    def _run(self, sql: str, values: tuple[str | int, ...], read: Callable[[Any], Any]) -> Any:
        from py4j.protocol import Py4JJavaError

        try:
            statement = self._connection.prepareStatement(sql)
            try:
                for place, value in enumerate(values, 1):
                    (statement.setString if isinstance(value, str) else statement.setLong)(place, value)
                return read(statement)
            finally:
                statement.close()
        except Py4JJavaError as error:
            found = self._message(error)
            if found.retriable:
                raise
            raise DatabaseError(found.text) from error


def connection_options(settings: Settings) -> dict[str, Any]:
    """Connection options for Spark's reader and writer, which pass those they do not know on to the driver."""
    dialect = dialect_of(settings.url)
    options: dict[str, Any] = {"url": settings.url}
    if dialect.driver:
        options["driver"] = dialect.driver
    if settings.user:
        options["user"] = settings.user
    if settings.password:
        options["password"] = settings.password
    if product(settings.url) == "postgresql":
        options["stringtype"] = "unspecified"  # text may become json, uuid and enums, as it does in SQL
    if product(settings.url) == "sqlite":
        options["busy_timeout"] = 30_000
    return options | settings.options


def no_driver(settings: Settings, driver: str) -> Failed:
    database = product(settings.url)
    return Failed(
        kind="environment",
        text=f"no JDBC driver found for {database}" + (f" ({driver})" if driver else ""),
        hints=["set sink.jdbc.driver_jar to the driver's jar"]
        + ([] if driver else ["and sink.jdbc.options: {driver: the.Class}"]),
    )


def message_of(error: Any, is_database: Callable[[Any], bool]) -> Message:
    """The database's own message, from anywhere in the chain of causes; otherwise the first line."""
    causes: list[Any] = []
    java = error.java_exception
    while java is not None:
        causes.append(java)
        java = java.getCause()
    retriable = failure_of(error).retriable
    for cause in reversed(causes):
        if is_database(cause):
            state = str(cause.getSQLState() or "")  # SQLite has none
            return Message(" ".join(str(cause.getMessage()).split()), retriable or state.startswith(PASSING))
    return Message(str(causes[-1].getMessage()).splitlines()[0], retriable)
