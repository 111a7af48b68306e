"""Samples in place of a job's source: the records or lines of a case, each batch in a file that Spark reads."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kafkad_etl.driver import protobuf
from kafkad_etl.driver.source import avro_rows, reader
from kafkad_etl.driver.source.parser import Part
from kafkad_etl.driver.terms import BatchId, DataFrame
from kafkad_etl.messages import Plan, SampleBatch, SampleRecord

RECORD = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, block STRING"
)
ONE_FILE = {"maxFilesPerTrigger": 1}
"""So that a stream takes one batch from each file, in the order of the files' times."""


class SampledRecords:
    """Records as Spark's Kafka source gives them."""

    def __init__(self, spark: Any, plan: Plan, batches: Sequence[SampleBatch], directory: Path) -> None:
        self._spark, self._plan, self._directory = spark, plan, directory
        self._has_blocks = any(record.block for batch in batches for record in batch.records)
        for number, batch in enumerate(batches):
            _write(_file(directory, number), [_line(record) for record in batch.records], number)

    def batch(self, number: int) -> DataFrame:
        return self._encoded(self._spark.read.schema(RECORD).json(str(_file(self._directory, number))))

    def stream(self) -> DataFrame:
        read = self._spark.readStream.schema(RECORD).options(**ONE_FILE)
        return self._encoded(read.json(str(self._directory)))

    def everything(self) -> DataFrame:
        return self._encoded(self._spark.read.schema(RECORD).json(str(self._directory)))

    def again(self, batch: BatchId) -> DataFrame:
        return self.batch(batch.number)

    def _encoded(self, frame: DataFrame) -> DataFrame:
        """Encodes blocks in the format of the job's values. JSON needs no encoding: the front has done it."""
        if not self._has_blocks:
            return frame.drop("block")
        from pyspark.sql import functions as f
        from pyspark.sql.avro.functions import to_avro

        value, declared = self._plan.job.value, self._plan.value_schema
        schema = Part(self._spark, value, "value", declared, {}).schema
        row = f.from_json("block", json.dumps(schema), {"mode": "FAILFAST"})
        if declared and declared.kind == "protobuf":
            bytes_of = protobuf.written(self._spark, declared, row, schema)
        else:
            avro = declared.text if declared and declared.kind == "avro" else avro_rows.avro_of(self._spark, schema)
            bytes_of = to_avro(row, avro)
        encoded = f.when(f.col("block").isNotNull(), bytes_of).otherwise(f.col("value"))
        return frame.withColumn("value", encoded).drop("block")


class SampledFiles:
    """Files of the job's own format, read by the job's own reader."""

    def __init__(self, spark: Any, plan: Plan, batches: Sequence[SampleBatch], directory: Path) -> None:
        self._spark, self._plan, self._directory = spark, plan, directory
        source = plan.job.source.files
        assert source
        for number, batch in enumerate(batches):
            into = directory / f"{number:06}"
            if source.format == "parquet":
                text = directory.parent / f"rows-{number:06}.json"
                _write(text, batch.lines, number)
                read = self._spark.read.schema(source.schema) if source.schema else self._spark.read
                read.json(str(text)).coalesce(1).write.parquet(str(into))
            else:
                into.mkdir()
                _write(into / f"lines.{source.format}", batch.lines, number)

    def batch(self, number: int) -> DataFrame:
        return reader.files(self._spark.read, self._in(f"{number:06}"))

    def stream(self) -> DataFrame:
        return reader.files(self._spark.readStream.options(**ONE_FILE), self._in("*"))

    def everything(self) -> DataFrame:
        return reader.files(self._spark.read, self._in("*"))

    def again(self, batch: BatchId) -> None:
        return None

    def _in(self, name: str) -> Plan:
        job = self._plan.job
        assert job.source.files
        files = replace(job.source.files, path=str(self._directory / name))
        return replace(self._plan, job=replace(job, source=replace(job.source, files=files)))


def _file(directory: Path, number: int) -> Path:
    return directory / f"{number:06}.json"


def _write(path: Path, lines: Sequence[str], number: int) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    os.utime(path, (number + 1, number + 1))


def _line(record: SampleRecord) -> str:
    known = {
        "key": _base64(record.key),
        "value": _base64(record.value),
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": _iso(record.timestamp_ms),
        "timestampType": 0,
        "headers": [{"key": name, "value": _base64(data)} for name, data in record.headers] or None,
        "block": record.block or None,
    }
    return json.dumps(known)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _iso(milliseconds: int) -> str:
    from datetime import UTC, datetime, timedelta

    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
