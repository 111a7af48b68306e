"""Adds up orders by day and writes the totals to a topic, one JSON object a day.

kctl etl submit daily_totals.py -- --from orders --to totals
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from kafkad_etl import topic

arguments = argparse.ArgumentParser()
arguments.add_argument("--from", dest="source", default="orders")
arguments.add_argument("--to", dest="target", default="totals")
given = arguments.parse_args()

spark = SparkSession.builder.appName("daily-totals").getOrCreate()
records = topic.reader(spark.read, given.source).load()
order = f.from_json(f.col("value").cast("string"), "id BIGINT, amount DECIMAL(12,2), at TIMESTAMP").alias("order")
days = (
    records.select(order)
    .where("order.id IS NOT NULL")
    .groupBy(f.to_date("order.at").alias("day"))
    .agg(f.count("*").alias("orders"), f.sum("order.amount").alias("amount"))
)
rows = days.select(f.col("day").cast("string").alias("key"), f.to_json(f.struct("*")).alias("value")).cache()
print(f"{rows.count()} days")
topic.writer(rows.write, given.target).save()
spark.stop()
