"""`kctl etl doctor`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkad_etl.commands import options
from kafkad_etl.commands.base import EtlCommand
from kctl.command.verb import pass_settings
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Writer

if TYPE_CHECKING:
    from kafkad_etl.job import Kafka

COLUMNS = (
    Column("check", "pyspark, java, archive (of Spark's classes), jars, room (memory and disk), hadoop or cluster."),
    Column("state", "ok, warn or error.", "state"),
    Column("what", "What was found."),
    Column("fix", "How to fix it."),
)


@click.command("doctor", cls=EtlCommand, columns=COLUMNS)
@click.argument("job", type=click.Path(path_type=Path), required=False)
@options.variables
@options.sets
@options.java_home
@pass_settings
def doctor(
    settings: Settings, job: Path | None, variables: dict[str, str], sets: tuple[str, ...], java_home: str
) -> int:
    """Check whether jobs can run on this machine.

    With a job file, its own requirements are checked too. The cluster is contacted if a job file is given or a cluster
    is named by -b or -c. Exits with 4 if something is missing.

    Example: kctl etl doctor orders.yaml
    """
    from kafkad_etl.errors import EtlExit
    from kafkad_etl.job import Kafka
    from kafkad_etl.machine.health import findings
    from kafkad_etl.model.loading import JobFile, load

    loaded = None
    if job:
        loaded = load(JobFile(job, variables, sets))
    reach = None
    if loaded or settings.bootstrap or settings.context:
        base = job.parent if job else Path()
        reach = _reach(settings, base, loaded.job.kafka if loaded else Kafka())
    found = list(findings(loaded.job if loaded else None, java_home, reach))
    Writer(settings, COLUMNS, Document(settings.command)).write([finding._asdict() for finding in found])
    return EtlExit.ENVIRONMENT if any(finding.state == "error" for finding in found) else EtlExit.DONE


def _reach(settings: Settings, base: Path, kafka: Kafka) -> Callable[[], str]:
    def reach() -> str:
        from kafkad_etl.cluster.clusters import Clusters, servers
        from kctl.texts.output import counted

        with Clusters(settings, base) as clusters:
            cluster = clusters.session(kafka).cluster
            brokers = counted(len(cluster.brokers), "broker")
            return f"{cluster.cluster_id} at {servers(clusters.access(kafka))}, {brokers}"

    return reach
