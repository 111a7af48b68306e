from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.model.loading import JobFile, load, masked
from kafkad_etl.planning.outlook import yaml_text
from tests.spark.model.jobs import FILE, SMALL, loaded, mistakes

MANY = """\
version: 1
name: orders
description: of all kinds
source:
  strat: earliest
  topics: orders
  rows_per_batch: many
  start: {orders: {zero: 5}}
value: {format: jsn}
run:
  group: true
  listen: nowhere
  listen: 127.0.0.1:9464
  stop_after: 5
sink:
  type: parquet
  path: /lake
  compact:
    after: run
    min_files: 1
  every: 5s
  csv:
"""


def test_all_mistakes_are_told_at_once_each_with_its_line() -> None:
    assert mistakes(MANY) == [
        'orders.yaml:5 source.strat: unknown key; did you mean "start"?',
        'orders.yaml:6 source.topics: must be a list, not the text "orders"; write [orders]',
        'orders.yaml:7 source.rows_per_batch: must be a whole number, not the text "many"',
        "orders.yaml:8 source.start.orders.zero: the key must be a whole number; it is a partition number",
        'orders.yaml:9 value.format: "jsn" is not one of avro, csv, json, protobuf, raw, text; did you mean "json"?',
        "orders.yaml:11 run.group: must be text or false, not true",
        "orders.yaml:13 run.listen: appears twice; remove one of them",
        "orders.yaml:14 run.stop_after: must be a block of keys (rows, time, idle …), not 5",
        "orders.yaml:20 sink.compact.min_files: must be at least 2, not 1",
        "orders.yaml:21 sink.every: unknown key; it belongs under run",
        "orders.yaml:22 sink.csv: has no value; give it one, or remove the key",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "orders.yaml:1: this is not a job file: it has no keys; kctl etl init writes one"),
        ("- 1", "orders.yaml:1: this is not a job file: it has no keys; kctl etl init writes one"),
        ("a: 1\n b: 2", "orders.yaml:2: this is not YAML: mapping values are not allowed here"),
        ("a: [1\nb: 2\n", "orders.yaml:2: this is not YAML: while parsing a flow sequence"),
        ("a: 1\n---\nb: 2\n", "orders.yaml:2: this is not YAML: expected a single document in the stream"),
        ("a: &x 1\nb: *x", "orders.yaml:2: aliases (*name) are not supported in job files; use `vars` and ${name}"),
        ("a: " + "[" * 60, "orders.yaml:1: blocks are nested too deeply"),
        ("a: " + "[" * 5000, "orders.yaml:1: blocks are nested too deeply"),
        (
            "a: \x01",
            "orders.yaml:1: this is not YAML: unacceptable character #x0001: special characters are not allowed",
        ),
        ("a: 1\nb: !!int abc", 'orders.yaml:2: "abc" is not what its tag says; write the value alone'),
        ("a: !!float x", 'orders.yaml:1: "x" is not what its tag says; write the value alone'),
        ("a: [!!bool yes]", 'orders.yaml:1: "yes" is not what its tag says; write the value alone'),
        ("a: !!null x", 'orders.yaml:1: "x" is not what its tag says; write the value alone'),
        (SMALL + "? [a, b]\n: 1\n", "orders.yaml:1: a key must be a single word"),
    ],
)
def test_what_is_no_job_file(text: str, told: str) -> None:
    assert mistakes(text)[0].startswith(told)


def test_missing_keys_are_told_where_they_belong() -> None:
    types = "console, csv, delta, iceberg, jdbc, json, none, parquet, topic"
    assert mistakes("version: 1\nsource: {topics: [a]}\nsink:\n  path: x\n") == [
        'orders.yaml:1: the key "name" is missing',
        f'orders.yaml:3 sink: the key "type" is missing; one of {types}',
    ]


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("version=2", "--set version: must be 1, not 2"),
        ("name=Orders", '--set name: "Orders" is not allowed here; it must match ^[a-z0-9-]{1,64}$'),
        ("sink.path=null", "--set sink.path: has no value; give it one, or remove the key"),
        ("sink.tpye=x", '--set sink.tpye: unknown key; did you mean "type"?'),
        (
            "sink=parquet",
            '--set sink: must be a block of keys (type, path, partition_by, mode …), not the text "parquet"',
        ),
        ("source.topics.3=x", '--set source.topics.3: there is no key "3" to set'),
        ("source.headers=yes", '--set source.headers: must be true or false, not the text "yes"'),
        ("source.rows_per_batch=" + "9" * 30, "--set source.rows_per_batch: is too large"),
        (
            "value={format: json, bad_rows: {max_ratio: 2}}",
            "--set value.bad_rows.max_ratio: must be at most 1, not 2.0",
        ),
        ("transform.deduplicate={keys: []}", "--set transform.deduplicate.keys: must not be empty"),
        (
            "spark.conf.a.b=[1]",
            "--set spark.conf.a.b: must be text, a whole number, a number or true or false, not a list",
        ),
    ],
)
def test_types_in_plain_words(setting: str, told: str) -> None:
    assert told in mistakes(SMALL, setting)


def test_scalars_are_what_they_look_like() -> None:
    job = loaded(
        SMALL + "kafka: {options: {a: 1, b: 1.5, c: true, d: 'true', e: 2026-11-01, f: on, g: 12:30}}\n"
        "run: {group: false, listen: '127.0.0.1:1'}\ndescription: 2026\nchecks: [{sql: SELECT 1, expect: null}]\n"
    ).job
    assert job.kafka.options == {
        "a": 1, "b": 1.5, "c": True, "d": "true", "e": "2026-11-01", "f": "on", "g": "12:30"
    }  # fmt: skip
    assert job.run.group is False
    assert job.description == "2026"
    assert job.checks[0].expect is None


def test_values_may_have_the_tags_that_they_are() -> None:
    tagged = "kafka: {options: {a: !!int 1, b: !!float 1, c: !!bool true, d: !!str true, e: !!int '7'}}\n"
    assert loaded(SMALL + tagged).job.kafka.options == {"a": 1, "b": 1.0, "c": True, "d": "true", "e": 7}


def test_text_keeps_the_digits_that_are_written() -> None:
    assert loaded(sets=["run.group=007"]).job.run.group == "007"
    assert loaded(sets=["run.group='false'"]).job.run.group == "false"


def test_set_makes_the_blocks_that_it_needs() -> None:
    job = loaded(
        sets=[
            "kafka.options.fetch.max.bytes=1",
            "run.stop_after.rows=5",
            "source.topics.0=b",
            "spark.conf={spark.a: 1}",
        ]
    ).job
    assert job.kafka.options == {"fetch.max.bytes": 1}
    assert job.run.stop_after.rows == 5
    assert job.source.topics == ("b",)
    assert job.spark.conf == {"spark.a": 1}


@pytest.mark.parametrize("setting", ["sink.path", "=x", "sink.path=[", "sink.path=a: b: c"])
def test_set_that_is_none(setting: str) -> None:
    with pytest.raises(EtlError) as caught:
        loaded(sets=[setting])
    assert caught.value.exit_code is EtlExit.USAGE


def test_where_a_key_is_and_where_one_would_be() -> None:
    found = loaded(SMALL + "transform:\n  steps:\n    - name: a\n      sql: |\n\n        SELECT 1,\n          nix\n")
    assert found.where("transform.steps.0.sql") == "orders.yaml:8 transform.steps.0.sql"
    assert found.where("transform.watermark.delay") == "orders.yaml:5 transform.watermark.delay"
    assert found.where("run") == "orders.yaml:1 run"


@pytest.mark.parametrize(
    ("sql", "line", "column", "place"),
    [
        ("SELECT nix", 1, 8, "orders.yaml:6:15"),
        ('"SELECT nix"', 1, 8, "orders.yaml:6:16"),
        ("|\n    SELECT 1,\n      nix", 2, 3, "orders.yaml:8:7"),
        (">-\n\n      SELECT 1", 1, 0, "orders.yaml:8"),
        (">-\n      SELECT 1,\n      nix\n", 2, 1, "orders.yaml:6"),
    ],
)
def test_a_position_in_sql_is_one_in_the_file(sql: str, line: int, column: int, place: str) -> None:
    found = loaded(SMALL + f"transform:\n  sql: {sql}\n")
    assert found.within("transform.sql", line, column) == f"{place} transform.sql"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for name, content in (("missing.yaml", None), ("binary.yaml", b"\xff\xfe")):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(EtlError, match=name) as caught:
            load(JobFile(tmp_path / name), {})
        assert caught.value.exit_code is EtlExit.USAGE


CONTINUOUS = SMALL + "run: {mode: continuous, every: 30s, output: append, stop_after: {rows: 5, idle: 1m}}\n"
BATCH = """\
version: 1
name: a
source: {topics: [a], end: -1h}
sink: {type: csv, path: x, mode: overwrite}
run: {mode: batch}
"""


def test_another_mode_leaves_out_what_means_nothing_in_it() -> None:
    run = loaded(CONTINUOUS, mode="available-now").job.run
    assert (run.mode, run.every, run.stop_after.rows, run.stop_after.idle) == ("available-now", "0s", 5, "0s")
    run = loaded(CONTINUOUS, mode="batch").job.run
    assert (run.mode, run.stop_after.rows) == ("batch", 0)
    assert loaded(CONTINUOUS, mode="continuous").job.run.every == "30s"
    assert loaded(SMALL, sets=["run.every=30s"], mode="continuous").job.run.every == "30s"


def test_another_mode_may_be_wrong_for_the_sink() -> None:
    (told,) = mistakes(BATCH, mode="available-now")
    assert told.startswith("orders.yaml:4 sink.mode: in mode available-now every batch would replace the one before; ")


def test_secrets_are_shown_in_no_mistake() -> None:
    told = mistakes(
        SMALL + "run: {listen: '${env:PW}'}\nkafka: {bootstrap: ['h:1'], security: {password: \"x\\\"y\"}}\n",
        "source.start=${env:PW}",
        environment={"PW": "hunter2"},
    )
    assert len(told) == 3
    assert not [line for line in told if "hunter2" in line or 'x"y' in line]


def a_catalog(settings: str) -> str:
    catalog = f"{{type: rest, url: 'http://c', {settings}}}"
    return SMALL.replace("{type: none}", f"{{type: iceberg, iceberg: {{table: a.b, catalog: {catalog}}}}}")


def a_database(settings: str) -> str:
    return SMALL.replace("{type: none}", f"{{type: jdbc, jdbc: {{table: a, {settings}}}}}")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (a_catalog("credential: 'id:hush'"), "id:hush"),
        (a_catalog("options: {s3.secret-access-key: hush}"), "hush"),
        (a_catalog("options: {s3.session-token: hush}"), "hush"),
        (a_catalog("options: {adls.sas-token.store.dfs.core.windows.net: hush}"), "hush"),
        (a_catalog("options: {fs.azure.account.key.store.dfs.core.windows.net: hush}"), "hush"),
        (a_catalog("options: {header.Authorization: Bearer hush}"), "Bearer hush"),
        (a_catalog("options: {header.X-Api-Key: hush}"), "hush"),
        (
            SMALL.replace(
                "{type: none}", "{type: iceberg, iceberg: {table: a.b, catalog: {type: rest, url: 'https://u:hush@c'}}}"
            ),
            "hush",
        ),
        (a_database("url: 'jdbc:mysql://root:hu@sh@h/d', driver_jar: /m.jar"), "hu@sh"),
        (a_database("url: 'jdbc:postgresql://root:hu/sh@h/d'"), "hu/sh"),
        (a_database("url: 'jdbc:mysql://address=(host=h)(user=u)(password=hu@sh)/d', driver_jar: /m.jar"), "hu@sh"),
        (a_database("url: 'jdbc:mysql://(host=h,password=hush,user=u)/d', driver_jar: /m.jar"), "hush"),
        (a_database("url: 'jdbc:postgresql://h/d?user=u&password=hu,sh'"), "hu,sh"),
        (a_database("url: 'jdbc:oracle:thin:scott/hush@//h:1521/d', driver_jar: /o.jar"), "hush"),
        (a_database("url: 'jdbc:postgresql://h/d?user=u&password=hush&ssl=true'"), "hush"),
        (a_database("url: 'jdbc:sqlserver://h;trustStorePassword=hush;user=u', driver_jar: /m.jar"), "hush"),
        (a_database("url: 'jdbc:postgresql://h/d', options: {sslpassword: 12345}"), "12345"),
    ],
)
def test_what_a_job_says_itself_is_shown_nowhere_if_its_key_is_one_of_secrets(text: str, secret: str) -> None:
    found = loaded(text)
    assert found.secrets == {secret}
    assert secret not in yaml_text(found.job, found.secrets)


def test_masked() -> None:
    assert (
        masked('a=hunter2 {"p": "x\\"y"} hunter', frozenset({"hunter2", "hunter", 'x"y'}))
        == 'a=**** {"p": "****"} ****'
    )
    assert masked("nothing", frozenset()) == "nothing"


_words = st.sampled_from(
    [
        "version",
        "1",
        "name",
        "source",
        "sink",
        "topics",
        "type",
        "none",
        "${a}",
        "${env:A}",
        "vars",
        "true",
        "null",
        "-1h",
    ]
)
_trees = st.recursive(
    st.one_of(_words, st.text(max_size=6), st.integers(), st.floats(), st.booleans(), st.none()),
    lambda children: st.one_of(st.lists(children, max_size=3), st.dictionaries(_words, children, max_size=4)),
    max_leaves=20,
)


@given(st.one_of(st.text(), _trees.map(lambda tree: str(tree).replace("'", '"'))))
def test_any_text_is_a_job_or_an_error_of_ours(text: str) -> None:
    try:
        loaded(text, environment={"A": "b"})
    except EtlError as error:
        assert error.exit_code is EtlExit.USAGE
        assert str(FILE) in error.what


def _paths() -> list[str]:
    import msgspec

    from kafkad_etl.job import Job

    names: list[str] = []

    def walk(kind: object, path: str) -> None:
        kind = getattr(kind, "type", kind) if type(kind).__name__ == "Metadata" else kind
        for alternative in getattr(kind, "types", ()):
            walk(alternative, path)
        for field in getattr(kind, "fields", ()):
            names.append(f"{path}.{field.name}".lstrip("."))
            walk(field.type, names[-1])

    walk(msgspec.inspect.type_info(Job), "")
    return names


@given(st.sampled_from(_paths()), _trees)
def test_any_value_of_any_key_is_right_or_a_mistake_with_its_place(path: str, tree: object) -> None:
    setting = f"{path}={str(tree).replace(chr(39), chr(34))}"
    try:
        loaded(sets=[setting], environment={"A": "b"})
    except EtlError as error:
        assert error.exit_code is EtlExit.USAGE


def test_the_environment_is_read_only_where_it_is_asked_for() -> None:
    os.environ["KAFKAD_ETL_TEST"] = "x"
    try:
        assert "the environment variable KAFKAD_ETL_TEST" in mistakes(SMALL, "sink.path=${env:KAFKAD_ETL_TEST}")[0]
    finally:
        del os.environ["KAFKAD_ETL_TEST"]
