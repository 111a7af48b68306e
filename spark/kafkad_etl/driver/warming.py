"""Uses what most jobs use of Spark, so that Java knows which classes belong into their archive."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import from_json, struct, to_json

SCHEMA = "id BIGINT, name STRING, amount DECIMAL(12,2), at TIMESTAMP"


def main(directory: Path) -> None:
    given = directory / "given"
    given.mkdir()
    rows = ({"id": n, "name": f"n{n % 3}", "amount": n / 4, "at": "2026-01-01T00:00:00Z"} for n in range(100))
    (given / "rows.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        batch.createOrReplaceTempView("source")
        shown = batch.sparkSession.sql(
            "SELECT id, upper(name) AS name, amount, date(at) AS day FROM source WHERE id > 1"
        )
        for form in ("parquet", "json"):
            shown.write.mode("append").partitionBy("day").format(form).save(str(directory / form))
        counts = batch.sparkSession.sql("SELECT name, count(*) AS n, sum(amount) AS amount FROM source GROUP BY name")
        counts.select(to_json(struct("*"))).collect()
        batch.unpersist()

    session = SparkSession.builder.getOrCreate()
    stream = session.readStream.text(str(given)).select(from_json("value", SCHEMA).alias("row")).select("row.*")
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(directory / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
