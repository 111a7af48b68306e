"""The program that spark-submit runs. Its arguments are the front's sockets, one for each job, over which it receives
the Plans. Jobs run at the same time, each in a thread and a session of its own; one that fails ends alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError

from kafkad_etl.driver import java_names
from kafkad_etl.driver.channel import Channel
from kafkad_etl.driver.failures import failure_of
from kafkad_etl.driver.session import activate, sessions_of, started
from kafkad_etl.driver.sinks import sink_of
from kafkad_etl.driver.sinks.files.sink import tidy
from kafkad_etl.driver.tasks.cases import run_cases
from kafkad_etl.driver.tasks.compact import compact
from kafkad_etl.driver.tasks.preview import preview
from kafkad_etl.driver.tasks.run import edges_of, run
from kafkad_etl.driver.tasks.upkeep import keep_up
from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.facts import FILES, TABLES
from kafkad_etl.messages import Ended, EndReason, Warned


def main(sockets: Sequence[str]) -> int:
    java_names.remember()
    channels = [Channel(socket) for socket in sockets]
    sessions: list[Any] = []
    try:
        sessions = sessions_of([channel.plan for channel in channels])
        return 0 if all(_carried_out(sessions, channels)) else 1
    except Exception as error:
        for channel in channels:
            channel.send(failure_of(error))
        return 1
    finally:
        for channel in channels:
            channel.close()
        if sessions:
            with suppress(Py4JError, OSError):  # the JVM may have gone
                sessions[0].stop()


def _carried_out(sessions: Sequence[Any], channels: Sequence[Channel]) -> list[bool]:
    """Runs all jobs to their ends; says which succeeded."""
    if len(channels) == 1:
        return [_job(sessions[0], channels[0])]
    from pyspark import InheritableThread

    done = [False] * len(channels)

    def work(number: int) -> None:
        activate(sessions[number], channels[number].plan.job.name)
        done[number] = _job(sessions[number], channels[number])

    threads = [InheritableThread(target=work, args=(number,), daemon=True) for number in range(len(channels))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def _job(spark: Any, channel: Channel) -> bool:
    """Runs one job to its end, which is the last that its channel says."""
    try:
        channel.send(started(spark))
        channel.send(Ended(task(spark, channel)))
        return True
    except Exception as error:
        channel.send(failure_of(error))
        return False
    finally:
        channel.close()


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
        return _compacted(spark, channel)
    reason = run(
        spark, channel.plan, channel, edges_of(spark, channel.plan, sink_of(spark, channel.plan, channel.send))
    )
    if channel.plan.job.sink.compact.after == "run" and reason != "stopped":
        try:
            _compacted(spark, channel)
        except JobFailed as error:
            if not error.failed.retriable:
                raise
            channel.send(Warned(error.failed.text))  # the rows are written, and the next run merges
    return reason


def _compacted(spark: Any, channel: Channel) -> EndReason:
    if channel.plan.job.sink.type in TABLES:
        return keep_up(spark, channel.plan, channel)
    return compact(spark, channel.plan, channel)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
