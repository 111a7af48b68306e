"""Files of cases: each mistake with its place, and what becomes of records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.messages import SampleRecord
from kafkad_etl.model.cases import CaseSource, cases_path, job_path, load_cases, samples
from kafkad_etl.model.loading import JobError
from tests.spark.jobs import job

HEAD = "version: 1\ncases:\n"
ONE = HEAD + "  - name: one\n    rows: []\n"
JSON: dict[str, Any] = {"format": "json", "schema": "id INT"}


def cases(directory: Path, text: str) -> list[CaseSource]:
    file = directory / "orders.yaml"
    file.write_text(text)
    return load_cases(file)


def mistakes(directory: Path, text: str) -> list[str]:
    with pytest.raises(JobError) as error:
        cases(directory, text)
    assert error.value.exit_code is EtlExit.USAGE
    return [line.removeprefix(f"{directory}/") for line in error.value.mistakes]


def records(directory: Path, text: str, **blocks: Any) -> list[SampleRecord]:
    (case,) = cases(directory, text)
    return [record for batch in samples(case, job(**blocks)) for record in batch.records]


def test_cases_are_in_a_folder_beside_the_job(tmp_path: Path) -> None:
    orders = tmp_path / "orders.yaml"
    assert cases_path(orders) == tmp_path / "tests" / "orders.yaml"
    assert job_path(cases_path(orders)) == cases_path(orders), "a job in a folder of that name"
    orders.touch()
    assert job_path(cases_path(orders)) == orders
    assert job_path(orders) == orders


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "orders.yaml:1: this file has no cases"),
        ("version: 1\ncases: []\n", "orders.yaml:2 cases: must not be empty"),
        (HEAD + "  - {name: a, nmae: a}\n", 'orders.yaml:3 cases.0.nmae: unknown key; did you mean "name"?'),
        (ONE, "orders.yaml:3 cases.0: gives no records; exactly one of records, values and batches"),
        (
            ONE + "    values: [1]\n    records: [{value: 1}]\n",
            "orders.yaml:3 cases.0: has both records and values; exactly one of records, values and batches",
        ),
        (
            HEAD + "  - {name: a, values: [1]}\n",
            (
                "orders.yaml:3 cases.0: expects nothing; "
                "give one of rows, dead_letters, bad, late, duplicates, warns, fails"
            ),
        ),
        (
            ONE + "    values: [1]\n  - {name: one, values: [1], bad: 0}\n",
            'orders.yaml:6 cases.1.name: there are two cases "one"',
        ),
        (
            ONE + "    records:\n      - {vlaue: 1}\n",
            'orders.yaml:6 cases.0.records.0.vlaue: unknown key; did you mean "value"?',
        ),
    ],
)
def test_each_mistake_has_its_line(tmp_path: Path, text: str, told: str) -> None:
    assert mistakes(tmp_path, text) == [told]


def test_lines_of_other_files_have_theirs(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"value": "a"}\n\n{"vlaue": "b"}\nno JSON\n')
    (tmp_path / "out.jsonl").write_text("[1]\n")
    text = HEAD + "  - name: one\n    records: in.jsonl\n    rows: out.jsonl\n    dead_letters: nix.jsonl\n"
    found = mistakes(tmp_path, text)
    assert [line.replace(f"{tmp_path}/", "") for line in found] == [
        "orders.yaml:4 cases.0.records: in.jsonl:3: Object contains unknown field `vlaue`",
        "orders.yaml:4 cases.0.records: in.jsonl:4: Expecting value: line 1 column 1 (char 0)",
        "orders.yaml:5 cases.0.rows: out.jsonl:1: Expected `object`, got `array`",
        "orders.yaml:6 cases.0.dead_letters: cannot read nix.jsonl: No such file or directory",
    ]


def test_records_that_kctl_printed_and_lines_that_it_would_produce(tmp_path: Path) -> None:
    printed = {
        "topic": "orders", "partition": 2, "offset": 7, "timestamp": "2026-11-01T00:00:00.000Z",
        "timestamp_ms": 1_793_491_200_000, "key": None, "value": {"base64": "/w=="},
        "headers": [{"key": "h", "value": "1"}],
    }  # fmt: skip
    (tmp_path / "in.jsonl").write_text(json.dumps(printed) + "\n")
    (first,) = records(tmp_path, ONE + "    records: in.jsonl\n")
    assert (first.partition, first.offset, first.timestamp_ms) == (2, 7, 1_793_491_200_000)
    assert (first.key, first.value, first.headers) == (None, b"\xff", [("h", b"1")])
    (tmp_path / "in.jsonl").write_text('{"id": 1.50}\n no JSON \n')
    found = records(tmp_path, ONE + "    values: in.jsonl\n")
    assert [(each.offset, each.value) for each in found] == [(0, b'{"id": 1.50}'), (1, b" no JSON ")]


def test_what_a_record_leaves_out_follows_from_the_others(tmp_path: Path) -> None:
    text = ONE + '    records: [{value: {id: 1}}, {offset: 5}, {partition: 1}, {timestamp: "1970-01-01T00:00:01Z"}]\n'
    found = records(tmp_path, text)
    assert [(each.topic, each.partition, each.offset) for each in found] == [
        ("orders", 0, 0),
        ("orders", 0, 5),
        ("orders", 1, 0),
        ("orders", 0, 6),
    ]
    assert [each.value for each in found] == [b'{"id":1}', None, None, None]
    assert found[-1].timestamp_ms == 1000
    avro: dict[str, Any] = {"format": "avro", "schema": "id INT"}
    (block,) = records(tmp_path, ONE + "    values: [{id: 1}]\n", value=avro)
    assert (block.value, block.block) == (None, '{"id": 1}')


@pytest.mark.parametrize(
    ("text", "blocks", "told"),
    [
        ("    values: [1]\n", {"source": {"pattern": "o.*"}}, "orders.yaml:5: the job reads topics by a pattern"),
        ("    records: [{timestamp: noon}]\n", {}, 'orders.yaml:5: the record has a timestamp "noon" that is none'),
        ("    values: [1]\n    lookups: {usres: []}\n", {}, 'orders.yaml:3: the job has no lookup "usres"'),
        (
            "    records: [{key: k}]\n",
            {"source": {"files": {"format": "parquet", "path": "/x"}}},
            "orders.yaml:3: the job reads files, whose rows have neither key nor offset",
        ),
    ],
)
def test_what_a_job_cannot_take_is_said(tmp_path: Path, text: str, blocks: dict[str, Any], told: str) -> None:
    with pytest.raises(EtlError) as error:
        records(tmp_path, ONE + text, **blocks)
    assert str(error.value.what).removeprefix(f"{tmp_path}/").startswith(told)
    assert error.value.exit_code is EtlExit.USAGE


def test_samples_arrive_in_the_driver_as_they_were_sent(tmp_path: Path) -> None:
    (case,) = cases(tmp_path, ONE + "    values: [{id: 1}]\n")
    (batch,) = samples(case, job(value=JSON))
    assert msgspec.json.decode(msgspec.json.encode(batch), type=type(batch)) == batch
