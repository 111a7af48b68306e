"""Topics for PySpark programs: Spark's readers and writers, with the brokers, the login and sound settings.

    from kafkad_etl import topic

    orders = topic.reader(spark.read, "orders").load()
    topic.writer(totals.write, "totals").save()

The same functions take `spark.readStream` and `rows.writeStream`. The cluster is the one that `kctl etl submit` was
given; in a program started otherwise, such as a notebook, it is kctl's current context.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

from kafkad_etl.cluster import topics
from kafkad_etl.cluster.clusters import client_of, probe
from kafkad_etl.facts import PRODUCER
from kafkad_etl.job import Source
from kctl.errors import KctlError
from kctl.reach.access import resolve
from kctl.reach.session import Session
from kctl.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, DataFrameWriter
    from pyspark.sql.streaming import DataStreamReader, DataStreamWriter

    Reader = TypeVar("Reader", DataFrameReader, DataStreamReader)
    Writer = TypeVar("Writer", DataFrameWriter, DataStreamWriter)
else:
    Reader = Writer = TypeVar("Any")

_READING = {"isolation.level": Source().isolation, "max.poll.records": str(Source().poll_records)}


def reader(of: Reader, *names: str) -> Reader:
    """Configures `spark.read` or `spark.readStream` for these topics, all of which must exist; `load()` is next.
    Records of aborted transactions are left out. Options that are set afterwards win."""
    _check(lambda session: topics.readable(session, names))
    return _configured(of, _READING).option("subscribe", ",".join(names))


def writer(of: Writer, name: str) -> Writer:
    """Configures `rows.write` or `rows.writeStream` for a topic, which must exist; `save()` or `start()` is next. Rows
    need a column `value`, and may have `key`, `headers` and `partition`. Options that are set afterwards win."""
    _check(lambda session: topics.writable(session, name, "", None))
    return _configured(of, PRODUCER).option("topic", name)


def options() -> dict[str, str]:
    """The cluster's address and the login, as options of Spark's format kafka."""
    access = resolve(Settings(), os.environ)
    return _spark_options(client_of(access, access.client_id))


def _configured(of: Any, defaults: dict[str, str]) -> Any:
    return of.format("kafka").options(**_spark_options(defaults), **options())


def _spark_options(client: dict[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in client.items()}


def _check(check: Callable[[Session], object]) -> None:
    """Asks the cluster itself, since Spark would wait for a minute, or create the topic. An error says what to do."""
    settings = Settings()
    try:
        with closing(Session(settings, resolve(settings, os.environ))) as session:
            probe(session)
            check(session)
    except KctlError as error:
        for hint in error.hints:
            error.add_note(hint)
        raise
