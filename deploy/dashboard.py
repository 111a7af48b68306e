"""Generates the Grafana dashboard: `python -m deploy.dashboard > deploy/grafana/kafkad.json`. A test compares them."""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS, _HEIGHT = 24, 7
_BROKERS = 'instance=~"$instance"'


class Panel(NamedTuple):
    """A panel. `queries` are pairs of PromQL and a legend. A stat shows one number, in red from `alarm` on."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    alarm: float | None = None


def _rate(metric: str, by: str, name: str, labels: str = "") -> tuple[str, str]:
    chosen = ",".join(filter(None, (_BROKERS, labels)))
    return f"sum by ({by}) (rate({metric}{{{chosen}}}[$__rate_interval]))", name


def _sum(metric: str) -> tuple[str, str]:
    return f"sum({metric}{{{_BROKERS}}})", ""


def _quantile(phase: str, request: str) -> tuple[str, str]:
    labels = f'{_BROKERS},request="{request}",quantile="0.99"'
    return f"kafka_network_requestmetrics_{phase}timems{{{labels}}}", f"{request} {phase} {{{{instance}}}}"


def _stat(title: str, metric: str, alarm: float | None = 1, unit: str = "short") -> Panel:
    return Panel(title, (_sum(metric),), unit, "stat", 3, alarm)


_TOPIC = 'topic!="",topic=~"$topic"'
_GROUP = 'consumergroup=~"$consumergroup",topic=~"$topic"'

ROWS: dict[str, tuple[Panel, ...]] = {
    "State": (
        Panel(
            "Brokers up", ((f"count(kafka_server_kafkaserver_brokerstate{{{_BROKERS}}} == 3)", ""),), "short", "stat", 3
        ),
        _stat("Offline partitions", "kafka_controller_kafkacontroller_offlinepartitionscount"),
        _stat("Under min.insync.replicas", "kafka_server_replicamanager_underminisrpartitioncount"),
        _stat("Under-replicated", "kafka_server_replicamanager_underreplicatedpartitions"),
        _stat("Offline log directories", "kafka_log_logmanager_offlinelogdirectorycount"),
        _stat("Partitions that cannot be compacted", "kafka_log_logcleanermanager_uncleanable_partitions_count"),
        _stat("Connections", "kafka_server_socketservermetrics_connection_count", None),
        Panel("Version", ((f"kafkad_build_info{{{_BROKERS}}}", "{{version}}"),), "short", "stat", 3),
    ),
    "Traffic": (
        Panel(
            "Records in",
            (_rate("kafka_server_brokertopicmetrics_messagesin_total", "topic", "{{topic}}", _TOPIC),),
            "cps",
        ),
        Panel(
            "Bytes in", (_rate("kafka_server_brokertopicmetrics_bytesin_total", "topic", "{{topic}}", _TOPIC),), "Bps"
        ),
        Panel(
            "Bytes out", (_rate("kafka_server_brokertopicmetrics_bytesout_total", "topic", "{{topic}}", _TOPIC),), "Bps"
        ),
    ),
    "Requests": (
        Panel("Requests", (_rate("kafka_network_requestmetrics_requests_total", "request", "{{request}}"),), "reqps"),
        Panel(
            "Errors",
            (_rate("kafka_network_requestmetrics_errors_total", "request, error", "{{request}} {{error}}"),),
            "cps",
        ),
        Panel(
            "Produce, slowest hundredth",
            (_quantile("total", "Produce"), _quantile("local", "Produce"), _quantile("remote", "Produce")),
            "ms",
        ),
        Panel(
            "Fetch, slowest hundredth of the work",
            (_quantile("local", "Fetch"), _quantile("local", "Metadata"), _quantile("local", "OffsetCommit")),
            "ms",
        ),
        Panel(
            "Idle",
            ((f"kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{{{_BROKERS}}}", "{{instance}}"),),
            "percentunit",
        ),
        Panel(
            "Connections made and ended",
            (
                _rate("kafka_server_socketservermetrics_connection_creation_total", "listener", "made {{listener}}"),
                _rate("kafka_server_socketservermetrics_connection_close_total", "listener", "ended {{listener}}"),
            ),
            "cps",
        ),
    ),
    "Consumer groups": (
        Panel(
            "Lag by group and topic",
            (
                (
                    f"sum by (consumergroup, topic) (kafka_consumergroup_lag_sum{{{_GROUP}}})",
                    "{{consumergroup}} {{topic}}",
                ),
            ),
            width=12,
        ),
        Panel(
            "Records committed per second",
            (
                _rate(
                    "kafka_consumergroup_current_offset", "consumergroup, topic", "{{consumergroup}} {{topic}}", _GROUP
                ),
            ),
            "cps",
            width=12,
        ),
        Panel(
            "Worst partitions",
            (
                (
                    f"topk(10, kafka_consumergroup_lag{{{_GROUP}}})",
                    "{{consumergroup}} {{topic}}-{{partition}}",
                ),
            ),
            width=12,
        ),
        Panel(
            "Groups by state",
            tuple(
                (f"sum(kafka_coordinator_group_groupmetadatamanager_numgroups{state}{{{_BROKERS}}})", state)
                for state in ("stable", "preparingrebalance", "completingrebalance", "empty")
            ),
            width=12,
        ),
    ),
    "Disk": (
        Panel(
            "Size by topic",
            ((f'sum by (topic) (kafka_log_log_size{{{_BROKERS},topic=~"$topic"}})', "{{topic}}"),),
            "bytes",
        ),
        Panel(
            "Read from and written to disks",
            (
                _rate("kafka_server_kafkaserver_linux_disk_read_bytes", "instance", "read {{instance}}"),
                _rate("kafka_server_kafkaserver_linux_disk_write_bytes", "instance", "written {{instance}}"),
            ),
            "Bps",
        ),
        Panel(
            "Compaction: dirtiest log, longest run",
            (
                (f"kafka_log_logcleanermanager_max_dirty_percent{{{_BROKERS}}}", "dirtiest, percent {{instance}}"),
                (f"kafka_log_logcleaner_max_clean_time_secs{{{_BROKERS}}}", "longest, seconds {{instance}}"),
            ),
        ),
    ),
    "Process": (
        Panel("CPU", (_rate("process_cpu_seconds_total", "instance", "{{instance}}"),), "percentunit"),
        Panel("Memory", ((f"process_resident_memory_bytes{{{_BROKERS}}}", "{{instance}}"),), "bytes"),
        Panel(
            "Open files",
            (
                (f"process_open_fds{{{_BROKERS}}}", "open {{instance}}"),
                (f"process_max_fds{{{_BROKERS}}}", "allowed {{instance}}"),
            ),
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    return {
        "uid": "kafkad",
        "title": "kafkad",
        "tags": ["kafka", "kafkad"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": _panels(),
    }


def _variables() -> list[dict[str, Any]]:
    asked = {
        "instance": "label_values(kafka_server_kafkaserver_brokerstate, instance)",
        "topic": "label_values(kafka_topic_partitions, topic)",
        "consumergroup": "label_values(kafka_consumergroup_members, consumergroup)",
    }
    every = {"multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        *(
            {"name": name, "type": "query", "datasource": _SOURCE, "query": query, "refresh": 2, "sort": 1, **every}
            for name, query in asked.items()
        ),
    ]


def _panels() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        made.append({"id": len(made) + 1, "type": "row", "title": title, "gridPos": _place(0, y, _COLUMNS, 1)})
        x, y = 0, y + 1
        for panel in row:
            if x + panel.width > _COLUMNS:
                x, y = 0, y + _HEIGHT
            made.append(_panel(panel, len(made) + 1, _place(x, y, panel.width, _HEIGHT)))
            x += panel.width
        y += _HEIGHT
    return made


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.alarm is not None:
        steps.append({"color": "red", "value": panel.alarm})
    targets = [
        {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": query, "legendFormat": name or "__auto"}
        for at, (query, name) in enumerate(panel.queries)
    ]
    defaults = {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    options: dict[str, Any] = {}
    if panel.kind == "stat":
        options["textMode"] = "name" if panel.title == "Version" else "value"
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
