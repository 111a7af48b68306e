"""The dashboard and the alerts that come with kafkad ask for nothing that a running kafkad does not serve."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.dashboard import dashboard, text
from kafkad.supervisor.metrics import own_families
from tests.metering.scrape import Metered, Scrape, metered

HERE = Path(__file__).parents[2]
DASHBOARD = HERE / "deploy/grafana/kafkad.json"
ALERTS = HERE / "deploy/prometheus/kafkad-alerts.yaml"
OPERATE = HERE / "docs/operate.md"

OF_PROMETHEUS = {"up", "instance", "job"}
"""Names that Prometheus itself makes, or adds to every sample."""
OF_A_SUPERVISOR = {family.name for family in own_families([])}
"""Served where one kafkad has several brokers."""

_METRIC = re.compile(r"\b(up|(?:kafka|kafkad|process)_\w+)(\{[^}]*\})?")
_LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
_BY = re.compile(r"\bby \(([^)]*)\)")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metered]:
    with metered(tmp_path_factory.mktemp("watched")) as broker:
        yield broker


def queries() -> list[str]:
    panels = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    variables = [each["query"] for each in dashboard()["templating"]["list"] if each["type"] == "query"]
    return [*panels, *variables, *(rule["expr"] for rule in rules())]


def rules() -> list[Any]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def labels_of(metric: str, found: Scrape) -> set[str]:
    return {label for sample in found.of(metric) for label in re.findall(r'(\w+)="', sample)} | OF_PROMETHEUS


def faults(query: str, found: Scrape) -> Iterator[str]:
    grouped = {label.strip() for labels in _BY.findall(query) for label in labels.split(",")}
    for metric, chosen in _METRIC.findall(query):
        if metric not in found.families | OF_PROMETHEUS | OF_A_SUPERVISOR:
            yield f"{metric} is not served"
        elif metric not in {"up"} | OF_A_SUPERVISOR:
            unknown = (grouped | set(_LABEL.findall(chosen))) - labels_of(metric, found)
            yield from (f"{metric} has no label {label}" for label in unknown)


def test_the_dashboard_is_what_its_rows_say() -> None:
    assert DASHBOARD.read_text() == text(), "python -m deploy.dashboard > deploy/grafana/kafkad.json"
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24


def test_every_query_asks_for_what_a_broker_serves(broker: Metered) -> None:
    found = broker.scrape()
    asked = queries()
    assert len(asked) > 50
    assert [(query, fault) for query in asked for fault in faults(query, found)] == []


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("sum(kafka_nothing_total) > 0", "kafka_nothing_total is not served"),
        ('kafka_log_log_size{color="red"}', "kafka_log_log_size has no label color"),
        ("sum by (color) (rate(kafka_log_log_size[5m]))", "kafka_log_log_size has no label color"),
    ],
)
def test_a_query_that_asks_for_more_is_found(broker: Metered, query: str, fault: str) -> None:
    assert list(faults(query, broker.scrape())) == [fault]


def test_every_alert_says_what_it_is_and_the_page_what_to_do() -> None:
    page = OPERATE.read_text()
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert f"`{rule['alert']}`" in page
    named = set(re.findall(r"`(Kafkad[A-Z]\w+)`", page))
    assert named == {rule["alert"] for rule in rules()}
