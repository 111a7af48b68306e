"""`kctl etl test` with a simulated Spark: what is judged, shown and refused."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kafkad_etl.errors import EtlExit
from kafkad_etl.machine import environment
from tests.kctl.conftest import Kctl, Ran
from tests.spark.fake_spark import fake_spark

JOB = """version: 1
name: NAME
source: {topics: [orders]}
value: {format: json, schema: "id BIGINT, customer STRING"}
transform: {sql: "SELECT id, customer FROM source"}
sink: {type: none}
"""
CASES = """version: 1
cases:
  - name: right
    values: [{id: 1}]
    rows: [{id: 1}]
  - name: wrong
    values: [{id: 2}]
    rows: [{id: 2, customer: c2}]
    bad: 1
  - name: broken
    values: [no JSON]
    fails: could not be parsed
"""
HELLO = 'channel = Channel(sys.argv[-1]); channel.send(Started(application="a", spark="4.0.0", pid=os.getpid()))\n'
SCHEMA = '{"type": "struct", "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}]}'
SPARK = f"""{HELLO}
schema = {SCHEMA!r}
row = '{{"id": 1, "customer": null}}'
for at, case in enumerate(channel.plan.cases):
    values = [record.value for record in case.batches[0].records]
    failed = Failed(kind="bad-rows", text="1 of 1 rows could not be parsed") if values == [b"no JSON"] else None
    channel.send(CaseResult(case=at, schema=schema, rows=[] if failed else [row], failed=failed, seconds=0.5))
channel.send(Ended("done")); channel.close()
"""
Test = Callable[..., Ran]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "tests").mkdir()
    return tmp_path


@pytest.fixture
def test(kctl: Kctl, here: Path, monkeypatch: pytest.MonkeyPatch) -> Test:
    def call(*words: object, spark: str = SPARK) -> Ran:
        found = fake_spark(here, spark)
        monkeypatch.setattr(environment, "find", lambda *_: found)
        return kctl("etl", "test", *words)

    return call


def write(here: Path, name: str, cases: str | None = CASES, job: str = JOB) -> None:
    (here / f"{name}.yaml").write_text(job.replace("NAME", name))
    if cases is not None:
        (here / "tests" / f"{name}.yaml").write_text(cases)


def test_cases_are_judged_and_failures_explained(test: Test, here: Path) -> None:
    write(here, "orders")
    write(here, "others", None)
    ran = test("orders.yaml", "others.yaml", "--junit", "report.xml")
    assert ran.code == EtlExit.FAILED
    assert [line.split()[1:3] for line in ran.out.splitlines()[1:]] == [
        ["right", "ok"],
        ["wrong", "error"],
        ["broken", "ok"],
    ]
    assert "others.yaml has no tests: tests/others.yaml does not exist" in ran.err
    assert ran.err.endswith(
        "tests/orders.yaml:6: wrong\n"
        "  rows: 1 expected, 1 came\n"
        '    tests/orders.yaml:8: did not come: {"id": 2, "customer": "c2"}\n'
        '    not expected: {"id": 1, "customer": null}\n'
        "  bad: expected 1, came 0\n"
    )
    (suite,) = ElementTree.parse(here / "report.xml").getroot()
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("orders.yaml", "3", "1")
    assert [case.get("name") for case in suite if len(case)] == ["wrong"]


def test_one_case_and_all_of_them_for_programs(test: Test, here: Path) -> None:
    write(here, "orders")
    ran = test("tests/orders.yaml", "orders.yaml", "--case", "right")
    assert (ran.code, len(ran.out.splitlines())) == (EtlExit.DONE, 2)
    items = json.loads(test("orders.yaml", "-o", "json").out)["items"]
    assert [(item["case"], item["where"], len(item["differences"])) for item in items] == [
        ("right", "tests/orders.yaml:3", 0),
        ("wrong", "tests/orders.yaml:6", 4),
        ("broken", "tests/orders.yaml:10", 0),
    ]


def test_an_error_that_was_not_expected_or_did_not_come(test: Test, here: Path) -> None:
    text = CASES.replace("fails: could not be parsed", "rows: []").replace("    bad: 1", "    fails: more than one")
    write(here, "orders", text)
    said = test("orders.yaml").err
    assert "  it failed: 1 of 1 rows could not be parsed\n" in said
    assert '  it did not fail; expected an error with "more than one"\n' in said


FIXED = "spark: {conf: {spark.memory.fraction: 0.5}}\n"


@pytest.mark.parametrize(
    ("change", "words", "told"),
    [
        (lambda here: write(here, "orders", None), [], "orders.yaml has no tests: tests/orders.yaml does not exist"),
        (lambda here: write(here, "orders", CASES.replace("rows", "rosw")), [],
         'tests/orders.yaml:5 cases.0.rosw: unknown key; did you mean "rows"?'),
        (lambda here: write(here, "orders", job=JOB.replace("customer FROM", "custmer FROM")), [],
         "orders.yaml:5:30 transform.sql: there is no column \"custmer\""),
        (lambda here: write(here, "orders"), ["--case", "rihgt"],
         '--case: there is no case "rihgt" (USAGE)\n       did you mean "right"?'),
        (lambda here: [write(here, "orders", job=JOB + FIXED), write(here, "b", job=JOB + FIXED.replace("5", "6"))],
         ["b.yaml"], ("b.yaml:7 spark.conf.spark.memory.fraction: 0.6 here, and 0.5 in orders.yaml:7 "
         "spark.conf.spark.memory.fraction: one Spark cannot have both")),
        (lambda here: write(here, "orders", job=JOB.replace("json, schema: \"id BIGINT, customer STRING\"",
                                                            "avro, registry: {url: 'http://x'}")), [],
         "orders.yaml:4 value.registry: tests ask no registry (USAGE)\n       give cases the schema"),
    ],
)  # fmt: skip
def test_mistakes_are_found_before_spark_starts(
    test: Test, here: Path, change: Callable[[Path], Any], words: list[str], told: str
) -> None:
    change(here)
    began = time.process_time()
    ran = test("orders.yaml", *words, spark=f"open({str(here / 'started')!r}, 'w')")
    assert told in ran.err
    assert ran.code == EtlExit.USAGE
    assert time.process_time() - began < 1
    assert not (here / "started").exists()
