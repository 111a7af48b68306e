"""Keeps the rows of a test's case as JSON, in the form in which the job's own sink would write them.

A topic's row is its record, of which json, avro and protobuf values are shown by their columns. For all other sinks it
is what `sink.type: json` would write.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from kafkad_etl.driver.sinks.files import sink as files
from kafkad_etl.driver.sinks.newest import last_of_each_key
from kafkad_etl.driver.sinks.text_formats import TIMES, column
from kafkad_etl.driver.sinks.topic import Records, value_columns
from kafkad_etl.driver.terms import BatchId, DataFrame, JobFailed, Written
from kafkad_etl.facts import FILES, POSITION, TABLES
from kafkad_etl.messages import Plan

ROW = "_row"
AS_TEXT = ("text", "raw", "csv")
"""Formats of a topic whose values are compared as they are."""


class KeptRows:
    def __init__(self, spark: Any, plan: Plan) -> None:
        self._sink = plan.job.sink
        self._records = Records(spark, plan, self._sink.topic) if self._sink.topic else None
        self.schema = ""
        self.rows: list[str] = []

    def prepare(self, columns: list[tuple[str, str]]) -> None:
        """What the sink itself would refuse, as far as the columns tell."""
        if self._records:
            self._records.check(columns)
        elif self._sink.type in FILES and (failed := files.mistake(self._sink, columns)):
            raise JobFailed(failed)

    def finished(self, batch: BatchId) -> Written | None:
        return None

    def write(self, rows: DataFrame, batch: BatchId) -> Written:
        if self._records:
            found = self._of_topic(rows, self._records)
        else:
            if keys := self._sink.keys or (self._sink.jdbc.keys if self._sink.jdbc else ()):
                rows = last_of_each_key(rows, keys)
            if self._sink.type in TABLES and keys:
                rows = rows.drop(*(name for name in POSITION if name not in keys))
            self.schema = rows.schema.json()
            found = [text for (text,) in rows.select(_as_json(rows.columns)).collect()]
        self.rows += found
        return Written(len(found))

    def _of_topic(self, rows: DataFrame, records: Records) -> list[str]:
        assert self._sink.topic
        names = [] if self._sink.topic.format in AS_TEXT else value_columns(self._sink.topic, rows.columns)
        made = rows.select(*records.of(rows), *([_as_json(names).alias(ROW)] if names else []))
        self.schema = record_schema(json.loads(rows.select(*map(column, names)).schema.json()) if names else "string")
        return [record_text(row.asDict(), row[ROW] if names else None) for row in made.collect()]


def _as_json(names: list[str]) -> Any:
    from pyspark.sql import functions

    return functions.to_json(functions.struct(*map(column, names)), {"ignoreNullFields": "false", **TIMES})


def record_schema(value: Any) -> str:
    types = {"key": "string", "value": value, "partition": "integer", "headers": "headers"}
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    return json.dumps({"type": "struct", "fields": fields})


def record_text(record: dict[str, Any], value: str | None = None) -> str:
    """`value`: its columns as JSON, instead of the record's own."""
    headers = {each["key"]: _text(each["value"]) for each in record.get("headers") or ()}
    known = {"key": _text(record.get("key")), "partition": record.get("partition"), "headers": headers}
    written = {name: json.dumps(each, ensure_ascii=False) for name, each in known.items()}
    written["value"] = value if value is not None else json.dumps(_text(record["value"]), ensure_ascii=False)
    return "{" + ", ".join(f'"{name}": {text}' for name, text in written.items()) + "}"


def _text(data: bytes | str | None) -> Any:
    if data is None or isinstance(data, str):
        return data
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
