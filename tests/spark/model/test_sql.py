from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad_etl.model.effective import effective
from kafkad_etl.model.inspection import inspect
from kafkad_etl.model.loading import JobError
from kafkad_etl.model.sql import Finding, findings
from tests.spark.model.jobs import SMALL, loaded

ORDERS = "value={format: json, schema: 'id BIGINT, ts TIMESTAMP, address STRUCT<city: STRING>, tags ARRAY<STRING>'}"
WATERMARK = "transform.watermark={column: ts, delay: 10 minutes}"
USERS = "transform.lookups={users: {format: csv, path: u, schema: 'id BIGINT, name STRING'}}"
WINDOWS = "SELECT window.start, count(*) AS n FROM source GROUP BY window(ts, '1 minute')"
TOPIC = "sink={type: topic, topic: {topic: out%s}}"
NO_HEADERS = ("sink.topic.headers", '"h" is TIMESTAMP, but must be ARRAY')
AVRO_AT = """value={format: avro, schema: '{"type": "record", "name": "A", "fields": [{"name": "at", "type": %s}]}'}"""


def found(sql: str = "", *sets: str) -> list[Finding]:
    given = [f"transform.sql={json.dumps(sql)}"] if sql else []
    return findings(effective(loaded(sets=[ORDERS, *given, *sets])))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM source",
        "SELECT ID, address.city, source.ts, s2.address.city FROM source JOIN source AS s2 ON source.id = s2.id",
        "SELECT id AS a, a + 1 AS b FROM source",
        "SELECT transform(tags, t -> concat(t, id)) AS t FROM source",
        "SELECT id, tag FROM source LATERAL VIEW explode(tags) t AS tag",
        "SELECT id, tag.x FROM source LATERAL VIEW explode(tags) tag",
        "WITH a AS (SELECT id AS i FROM source), b (j) AS (SELECT i FROM a) SELECT j FROM b",
        "SELECT id FROM source WHERE EXISTS (SELECT 1 FROM users WHERE users.id = source.id)",
        "SELECT s.i FROM (SELECT id AS i FROM source) s UNION ALL SELECT name FROM users",
        "SELECT * FROM source JOIN users USING (id)",
        "SELECT anything FROM range(5)",
        "SELECT a, b FROM (SELECT id, ts FROM source) AS t (a, b)",
        "SELECT s.a FROM users AS s (a, b)",
        "SELECT x FROM (SELECT id, name FROM users) PIVOT (count(id) FOR name IN ('x'))",
        "SELECT anything FROM lake.orders",
        "SELECT anything FROM parquet.`/a/b`",
        "SELECT u.name, f.x FROM users u JOIN lake.f f ON f.y = u.id",
        "FROM source SELECT id",
        "SELECT date_format(_timestamp, 'yyyy'), current_date, TIMESTAMPDIFF(HOUR, ts, _timestamp) FROM source",
        "SELECT row_number() OVER (PARTITION BY id ORDER BY _offset) AS n FROM source",
        "SELECT name, count(*) FROM users GROUP BY name",
    ],
)
def test_sql_that_is_right(sql: str) -> None:
    assert found(sql, USERS) == []


@pytest.mark.parametrize(
    ("sql", "level", "text", "hint", "place"),
    [
        ("SELECT nix FROM source", "wrong", 'there is no column "nix"', "known: id, ts, address", (1, 8)),
        ("SELECT id,\n  addres.city FROM source", "wrong", 'no column "addres"', 'mean "address"', (2, 3)),
        ("SELECT source.tss FROM source", "wrong", 'there is no column "tss"', '"ts"', (1, 15)),
        ("SELECT 1 FROM source WHERE nix > 1", "wrong", 'there is no column "nix"', "", (1, 28)),
        ("SELECT 1 FROM source WHERE id IN (SELECT nix FROM users)", "wrong", 'no column "nix"', "", (1, 42)),
        ("WITH a AS (SELECT nix FROM source) SELECT * FROM a", "wrong", 'no column "nix"', "", (1, 19)),
        ("SELECT id FROM users UNION ALL SELECT nix FROM source", "wrong", 'no column "nix"', "", (1, 39)),
        ("SELECT * FROM sorce", "wrong", 'there is no view "sorce"', 'did you mean "source"?', (1, 15)),
        ("SELECT 1 FROM source\nJOIN user ON 1 = 1", "wrong", 'no view "user"', 'did you mean "users"?', (2, 6)),
        ("SELECT 1 FROM source\nWHERE (id = 1", "wrong", 'ends too early, after "1"', "", (2, 13)),
        ("SELECT id,\n 'a FROM source", "wrong", "unterminated quote or comment", "", (2, 2)),
        ("SELEC id FROM source", "wrong", 'cannot be parsed near "FROM"', "", (1, 10)),
        ("SELECT 1; SELECT 2", "wrong", "must be a single SELECT", "", (1, 1)),
        ("DELETE FROM source", "wrong", "must be a SELECT", "", (1, 1)),
        ("--", "wrong", "is empty", "", (1, 1)),
        ("SELECT id /* FROM source", "wrong", "unterminated quote or comment", "", (1, 11)),
        ("SELECT id, FROM source", "wrong", 'near "FROM": nothing follows the comma', "", (1, 12)),
        ("SELECT concat(id,) AS c FROM source", "wrong", "nothing follows the comma", "", (1, 18)),
        ("TABLE source", "doubt", "is not a SELECT", "if Spark accepts it", (1, 1)),
        ("SELECT user, date_add(day, 1, ts) AS d FROM source", "doubt", 'no column "user"', "", (1, 8)),
        (
            "SELECT id, count(*) AS n FROM source GROUP BY id",
            "wrong",
            "this aggregates without a watermark",
            "run.output: update",
            (1, 8),
        ),
        ("SELECT max(id) AS m FROM source", "wrong", "this aggregates without a watermark", "", (1, 8)),
        ("SELECT DISTINCT id FROM source", "note", "DISTINCT applies to each batch", "transform.deduplicate", (1, 17)),
    ],
)
def test_what_is_found(sql: str, level: str, text: str, hint: str, place: tuple[int, int]) -> None:
    finding = found(sql, USERS)[0]
    assert finding.level == level
    assert text in finding.text
    assert hint in "; ".join(finding.hints)
    assert (finding.line, finding.column) == place
    assert finding.path == "transform.sql"


@pytest.mark.parametrize(
    ("sql", "sets", "level", "text"),
    [
        (WINDOWS, [], "wrong", "this aggregates without a watermark"),
        (WINDOWS, [WATERMARK], "", ""),
        (WINDOWS, ["run.output=update"], "", ""),
        (WINDOWS, ["run.mode=batch"], "", ""),
        (WINDOWS + " ORDER BY 1", [WATERMARK], "wrong", "Spark sorts streams only in output complete"),
        (WINDOWS + " ORDER BY 1", ["run.output=complete"], "", ""),
        ("SELECT id, count(*) AS n FROM source GROUP BY id", [WATERMARK], "doubt", "groups without a window or ts are"),
        ("SELECT ts, count(*) AS n FROM source GROUP BY ts", [WATERMARK], "", ""),
        ("SELECT 1 AS a, count(*) AS n FROM source GROUP BY 1", [WATERMARK], "", ""),
        (
            "SELECT row_number() OVER (ORDER BY id) AS n FROM source",
            [WATERMARK],
            "wrong",
            "Spark does not support OVER",
        ),
        ("SELECT id FROM source", ["run.output=complete"], "wrong", "output complete requires SQL that aggregates"),
    ],
)
def test_what_a_stream_can_have(sql: str, sets: list[str], level: str, text: str) -> None:
    assert [(finding.level, text) for finding in found(sql, *sets) if text in finding.text] == [(level, text)] * bool(
        text
    )


@pytest.mark.parametrize(
    ("sql", "sets", "path", "text"),
    [
        ("SELECT id FROM source", [TOPIC % ", format: text"], "sink.topic.format", "writes the column `value`"),
        ("SELECT id FROM source", [TOPIC % ", key: ids"], "sink.topic.key", 'the result has no column "ids"'),
        ("SELECT id FROM source", [TOPIC % ", partition: p"], "sink.topic.partition", 'no column "p"'),
        ("SELECT id FROM source", [TOPIC % ", headers: h"], "sink.topic.headers", 'no column "h"'),
        (
            "SELECT id, _topic, _offset FROM source",
            [TOPIC % ", source_header: true"],
            "sink.topic.source_header",
            "_partition",
        ),
        (
            "SELECT id FROM source",
            [TOPIC % ", source_header: true"],
            "sink.topic.source_header",
            "lacks the columns _topic, _partition, _offset",
        ),
        (
            "SELECT id FROM source",
            [TOPIC % ", partition: id"],
            "sink.topic.partition",
            '"id" is BIGINT, but must be INT',
        ),
        ("", [TOPIC % ", partition: tags"], "sink.topic.partition", '"tags" is ARRAY, but must be INT'),
        (
            "SELECT id, CAST(id AS STRING) AS h FROM source",
            [TOPIC % ", headers: h"],
            "sink.topic.headers",
            '"h" is STRING, but must be ARRAY',
        ),
        ("WITH a AS (SELECT s.* FROM source s) SELECT Ts AS h, id FROM a", [TOPIC % ", headers: h"], *NO_HEADERS),
        ("SELECT s.ts h FROM source s JOIN users ON s.id = users.id", [TOPIC % ", headers: h"], *NO_HEADERS),
        ("", ["transform.watermark={column: id, delay: 1h}"], "transform.watermark.column", '"id" is BIGINT, but must'),
        (
            "",
            ["transform.watermark={column: _offset, delay: 1h}"],
            "transform.watermark.column",
            '"_offset" is BIGINT, but must',
        ),
        (
            "",
            [AVRO_AT % '["null", "string"]', "transform.watermark={column: at, delay: 1h}"],
            "transform.watermark.column",
            '"at" is STRING, but must be TIMESTAMP',
        ),
        ("SELECT id FROM source", ["sink={type: csv, path: a, partition_by: [day]}"], "sink.partition_by.0", '"day"'),
        ("", ["sink={type: csv, path: a, partition_by: [day]}"], "sink.partition_by.0", '"day"'),
        ("SELECT id FROM source", ["sink={type: csv, path: a, partition_by: [ID]}"], "sink.partition_by", "no column"),
        ("", [TOPIC % ", format: raw"], "sink.topic.format", "writes the column `value`"),
        (
            "",
            ["transform.watermark={column: tss, delay: 1h}"],
            "transform.watermark.column",
            'source has no column "tss"',
        ),
        ("", ["transform.deduplicate={keys: [id, no]}"], "transform.deduplicate.keys.1", 'source has no column "no"'),
        ("", ["checks=[{sql: SELECT count(nix) FROM out, expect: 0}]"], "checks.0.sql", 'there is no column "nix"'),
        ("", ["checks=[{sql: SELECT count(*) FROM source, expect: 0}]"], "checks.0.sql", 'there is no view "source"'),
        ("", ["checks=[{sql: SELECT (, expect: 0}]"], "checks.0.sql", "ends too early"),
        ("", ["value.schema=id BIGNT"], "value.schema", "cannot be parsed"),
        (
            "",
            ["sink={type: jdbc, jdbc: {url: 'jdbc:sqlite:a', table: t, mode: upsert, keys: [no]}}"],
            "sink.jdbc.keys.0",
            'the result has no column "no"',
        ),
        (
            "",
            ["transform.steps=[{name: a, sql: SELECT id FROM source}, {name: b, sql: SELECT ts FROM a}]"],
            "transform.steps.1.sql",
            'there is no column "ts"',
        ),
    ],
)
def test_columns_that_other_keys_name(sql: str, sets: list[str], path: str, text: str) -> None:
    assert [finding for finding in found(sql, *sets) if finding.path == path and text in finding.text]


@pytest.mark.parametrize(
    ("sql", "sets"),
    [
        ("SELECT to_json(struct(*)) AS value FROM source", [TOPIC % ", format: text"]),
        ("SELECT * FROM lake.t", [TOPIC % ", format: text, key: k"]),
        ("SELECT *, 1 AS p FROM source", [TOPIC % ", key: ID, partition: p, source_header: true"]),
        ("", [TOPIC % ", key: _key, source_header: true"]),
        ("SELECT cast(id AS STRING) FROM source", [TOPIC % ", key: id"]),
        ("SELECT * EXCEPT (ts) FROM source", [TOPIC % ", key: id"]),
        ("SELECT id, address.city FROM source", ["sink={type: csv, path: a, partition_by: [city]}"]),
        ("SELECT count(*) FROM source", ["run.mode=batch", TOPIC % ", format: text"]),
        ("", ["value={format: raw}", TOPIC % ", format: raw"]),
        (
            "SELECT a, _file FROM source",
            ["source={files: {format: csv, path: a, schema: a INT}}", "value={format: raw}"],
        ),
        ("", ["value={format: avro, registry: {url: http://u}}", TOPIC % ", key: anything"]),
        ("SELECT id, concat(_headers) AS h FROM source", [TOPIC % ", headers: h", "source.headers=true"]),
        ("SELECT id, tags AS h FROM source", [TOPIC % ", headers: h"]),
        ("SELECT * EXCEPT (ts), collected(ts) AS ts FROM source", [TOPIC % ", headers: ts"]),
        ("SELECT ts FROM source UNION ALL SELECT id FROM source", [TOPIC % ", headers: ts"]),
        ("SELECT ts.h FROM source, nowhere.ts", [TOPIC % ", headers: h"]),
        ("SELECT id, CAST(id AS INT) AS p, _partition FROM source", [TOPIC % ", partition: p"]),
        ("", [TOPIC % ", partition: _partition, headers: _headers", "source.headers=true"]),
        ("", ["transform.watermark={column: _timestamp, delay: 1h}"]),
        ("", ["value.schema='ts TIMESTAMP_NTZ, window STRUCT<end: TIMESTAMP>'", WATERMARK]),
        ("", [AVRO_AT % '{"type": "long", "logicalType": "timestamp-millis"}', WATERMARK.replace("ts", "at")]),
        ("", ["checks=[{sql: SELECT count(*) FROM out JOIN users ON out.id = users.id, expect: 0}]", USERS]),
    ],
)
def test_columns_that_are_there_or_may_be(sql: str, sets: list[str]) -> None:
    assert found(sql, *sets) == []


@pytest.mark.parametrize(
    ("sql", "hints"),
    [
        ("SELECT id, id AS p FROM source", ("CAST(p AS INT) in the SQL",)),
        ("SELECT id, CAST(ts AS DATE) AS p FROM source", ()),
        ("SELECT id, CAST(ts AS TIMESTAMP_NTZ) AS p FROM source", ()),
        ("SELECT id, tags AS p FROM source", ()),
    ],
)
def test_only_casts_that_spark_has_are_recommended(sql: str, hints: tuple[str, ...]) -> None:
    [finding] = found(sql, TOPIC % ", partition: p")
    assert finding.hints == hints


def test_a_job_without_schema_and_sql_is_looked_at_for_what_its_topic_needs() -> None:
    job = loaded(sets=["sink={type: topic, topic: {topic: out, format: raw, headers: value}}"])
    with pytest.raises(JobError, match=r'sink\.topic\.headers: the column "value" is BINARY, but must be ARRAY'):
        inspect(job, effective(job))


def test_settings_that_kafkas_clients_do_not_have_are_warned_of() -> None:
    options = "kafka={options: {fetch.max.byte: 3, fetch.max.bytes: 3, client.rack: a, check.crcs: true}}"
    job = loaded(sets=[options, TOPIC % ", options: {linger.sm: 3, linger.ms: '5', check.crcs: true}"])
    ours, theirs, consumers = inspect(job, effective(job))
    assert "kafka.options.fetch.max.byte: Kafka's clients will ignore it: there is no such setting" in ours
    assert 'did you mean "fetch.max.bytes"' in ours
    assert "sink.topic.options.linger.sm: Kafka's producer will ignore it" in theirs and '"linger.ms"' in theirs
    assert "sink.topic.options.check.crcs: Kafka's producer will ignore it" in consumers


def test_columns_left_out_by_except_are_gone() -> None:
    assert found("SELECT * EXCEPT (ts) FROM source", TOPIC % ", key: ts")[0].path == "sink.topic.key"


def test_a_finding_in_a_block_of_sql_has_its_line_in_the_file() -> None:
    job = loaded(
        SMALL
        + "value: {format: json, schema: a INT}\ntransform:\n  sql: |\n    SELECT a,\n      nix\n    FROM source\n"
    )
    finding = findings(effective(job))[0]
    assert job.within(finding.path, finding.line, finding.column) == "orders.yaml:9:7 transform.sql"


def test_schemas_of_all_kinds_have_columns(tmp_path: Path) -> None:
    avro = json.dumps({"type": "record", "name": "A", "fields": [{"name": "id", "type": "long"}]})
    job = loaded(SMALL + f"value: {{format: avro, schema: '{avro}'}}\ntransform: {{sql: SELECT nix FROM source}}\n")
    assert findings(effective(job))[0].hints == ("known: id, _key, _topic, _partition, _offset, _timestamp",)


CSV = "value={format: csv, schema: '%s'}"
JSON = "value={format: json, schema: '%s'}"
KEY = "key={format: json, schema: '%s'}"
FILES = "source={files: {format: %s, path: a, schema: '%s'}}"
LOOKUP = "transform.lookups={l: {format: %s, path: a, schema: '%s'}}"
SENSITIVE = "spark.conf={spark.sql.caseSensitive: %s}"
AVRO = """value={format: avro, schema: '{"type": "record", "name": "A", "fields": [%s]}'}"""
LONGS = '{"name": "id", "type": "long"}, {"name": "%s", "type": "long"}'


@pytest.mark.parametrize(
    ("sets", "path", "text"),
    [
        ([JSON % "id INT, _key STRING"], "value.schema", 'the name "_key" is taken'),
        ([JSON % "id INT, _Headers STRING"], "value.schema", 'the name "_Headers" is taken'),
        ([JSON % "id INT, _corrupt STRING"], "value.schema", 'the name "_corrupt" is taken'),
        ([AVRO % (LONGS % "_offset")], "value.schema", 'the name "_offset" is taken'),
        ([KEY % "_corrupt STRING"], "key.schema", 'the name "_corrupt" is taken'),
        ([FILES % ("json", "id INT, _file STRING")], "source.files.schema", 'the name "_file" is taken'),
        ([JSON % "id INT, ID STRING"], "value.schema", '"ID" appears twice; Spark ignores the case of names'),
        ([JSON % "id INT, id INT", SENSITIVE % "true"], "value.schema", '"id" appears twice'),
        ([KEY % "id INT, ID STRING"], "key.schema", '"ID" appears twice'),
        ([FILES % ("parquet", "id INT, ID STRING")], "source.files.schema", '"ID" appears twice'),
        ([LOOKUP % ("parquet", "id INT, ID STRING")], "transform.lookups.l.schema", '"ID" appears twice'),
        ([CSV % "id INT, _end_of_line STRING"], "value.schema", 'the name "_end_of_line" is taken'),
        ([CSV % "id INT, a ARRAY<INT>"], "value.schema", 'csv has no arrays, maps or structs, as "a" is'),
        ([CSV % "id INT, m MAP<STRING, INT>"], "value.schema", 'csv has no arrays, maps or structs, as "m" is'),
        ([FILES % ("csv", "s STRUCT<a: INT>")], "source.files.schema", "csv has no arrays, maps or structs"),
        ([LOOKUP % ("csv", "a ARRAY<INT>")], "transform.lookups.l.schema", "csv has no arrays, maps or structs"),
    ],
)
def test_columns_that_cannot_be(sets: list[str], path: str, text: str) -> None:
    (finding,) = findings(effective(loaded(sets=sets)))
    assert (finding.level, finding.path) == ("wrong", path)
    assert finding.text.startswith(text)
    assert finding.hints


@pytest.mark.parametrize(
    "sets",
    [
        [JSON % "id INT, _id INT, a ARRAY<INT>"],
        [JSON % "id INT, ID STRING", SENSITIVE % "true"],
        [KEY % "_key STRING, a ARRAY<INT>"],
        [AVRO % (LONGS % "_corrupt")],
        [FILES % ("parquet", "_key INT, _file INT, a ARRAY<INT>")],
        [FILES % ("json", "_key INT, a ARRAY<INT>")],
        [LOOKUP % ("csv", "_key INT, _file INT, _corrupt INT")],
    ],
)
def test_columns_that_may_have_such_names_and_types(sets: list[str]) -> None:
    assert findings(effective(loaded(sets=sets))) == []


def test_csv_in_files_of_schemas_has_no_nested_columns_either(tmp_path: Path) -> None:
    fields = [{"name": "a", "type": {"type": "array", "elementType": "long", "containsNull": True}}]
    (tmp_path / "a.json").write_text(json.dumps({"type": "struct", "fields": fields}))
    (finding,) = findings(effective(loaded(sets=[f"value={{format: csv, schema: {{file: {tmp_path}/a.json}}}}"])))
    assert finding.text.startswith("csv has no arrays, maps or structs")


_WORDS = "SELECT FROM source WHERE id ( ) , * . ' ` WITH a AS JOIN ON GROUP BY window OVER UNION ALL -> [ ] 1 /* -- ;"
_words = st.sampled_from(_WORDS.split())


@given(st.lists(_words, max_size=15).map(" ".join))
def test_any_text_is_looked_at_without_falling(sql: str) -> None:
    if sql:
        assert all(finding.level in ("wrong", "doubt", "note") for finding in found(sql))
