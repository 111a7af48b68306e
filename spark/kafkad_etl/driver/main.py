"""The program that spark-submit runs. Its only argument is the front's socket, over which it receives the Plan."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError

from kafkad_etl.driver.channel import Channel
from kafkad_etl.driver.failures import failure_of
from kafkad_etl.driver.session import session_of, started
from kafkad_etl.driver.sinks import sink_of
from kafkad_etl.driver.sinks.files.sink import tidy
from kafkad_etl.driver.tasks.cases import run_cases
from kafkad_etl.driver.tasks.compact import compact
from kafkad_etl.driver.tasks.preview import preview
from kafkad_etl.driver.tasks.run import edges_of, run
from kafkad_etl.facts import FILES
from kafkad_etl.messages import Ended, EndReason


def main(socket: str) -> int:
    channel = Channel(socket)
    spark: Any = None
    try:
        spark = session_of(channel.plan)
        channel.send(started(spark))
        channel.send(Ended(task(spark, channel)))
        return 0
    except Exception as error:
        channel.send(failure_of(error))
        return 1
    finally:
        channel.close()
        if spark is not None:
            with suppress(Py4JError, OSError):  # the JVM may have gone
                spark.stop()


def task(spark: Any, channel: Channel) -> EndReason:
    if channel.plan.task == "preview":
        return preview(spark, channel.plan, channel)
    if channel.plan.task == "test":
        return run_cases(spark, channel.plan, channel)
    try:
        return _written(spark, channel)
    finally:
        if channel.plan.job.sink.type in FILES:
            with suppress(Py4JError, OSError):  # the JVM may have gone
                tidy(spark, channel.plan)


def _written(spark: Any, channel: Channel) -> EndReason:
    if channel.plan.task == "compact":
        return compact(spark, channel.plan, channel)
    reason = run(
        spark, channel.plan, channel, edges_of(spark, channel.plan, sink_of(spark, channel.plan, channel.send))
    )
    if channel.plan.job.sink.compact.after == "run" and reason != "stopped":
        compact(spark, channel.plan, channel)
    return reason


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
