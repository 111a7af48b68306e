from __future__ import annotations

import pytest

from tests.spark.model.jobs import SMALL, loaded, mistakes

EXACTLY = "sink={type: topic, topic: {topic: a, delivery: exactly-once%s}}"
SQLITE = "sink={type: jdbc, jdbc: {url: 'jdbc:sqlite:a.db', table: t%s}}"
DELTA = "sink={type: delta, path: a}"
ICEBERG = "sink={type: iceberg, path: /a, iceberg: {table: %s}}"
CATALOG = "sink={type: iceberg, path: /a, iceberg: {table: a.b, catalog: {type: %s}}}"
REST = CATALOG.replace("path: /a, ", "")
FILES = "source={files: {format: parquet, path: /a%s}}"
WINDOWS = "transform.watermark={column: ts, delay: 10 minutes}"
S3 = "sink={type: csv, path: 's3a://lake/a'}"
REGISTRY = "sink={type: topic, topic: {topic: a, %s, registry: {url: http://u}}}"
DEAD = "value={format: json, schema: a INT, bad_rows: {action: dead_letter%s}}"


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        # source
        (["source={}"], "source: names nothing to read; give exactly one of topics, pattern, partitions and files"),
        (["source.pattern=a.*"], "source: has topics and pattern; give exactly one of"),
        (["source.topics.0=a b"], 'source.topics.0: "a b" is not a valid topic name'),
        (["source={topics: [a, a]}"], 'source.topics.1: "a" appears twice'),
        (["source={pattern: '('}"], "source.pattern: is not a regular expression"),
        (["source={partitions: {a: []}}"], "source.partitions.a: has no partitions"),
        (["source={partitions: {a: [0, 0]}}"], "source.partitions.a: names a partition twice"),
        (["source={partitions: {a: [-1]}}"], "source.partitions.a: partition numbers start at 0"),
        (["source.start=earlist"], 'source.start: "earlist" is not a position in a topic; did you mean "earliest"?'),
        (
            ["source.start=2026-13-01"],
            'source.start: "2026-13-01" is not a position in a topic; earliest, latest, group,',
        ),
        (["source.start='" + "9" * 5000 + "'"], "is not a position in a topic; earliest, latest, group,"),
        (
            ["source.start={ordres: {0: 1}}"],
            'source.start.ordres: "ordres" is not read by this job; did you mean "orders"?',
        ),
        (["source.start={orders: {0: -5}}"], 'source.start.orders.0: "-5" is not an offset, earliest or latest'),
        (["source={partitions: {a: [0]}, start: {a: {1: 0}}}"], "source.start.a.1: a-1 is not read by this job"),
        (["source.start=group", "run.group=false"], "source.start: `run.group` is false"),
        (["source.end=-1h"], "source.end: mode available-now has no end; use run.mode: batch"),
        (["source.end=group", "run.mode=batch"], "source.end: a group can only be where to start, not where to stop"),
        ([FILES % ""], "source.files: `schema` is required to resume where a run stopped"),
        (["source={files: {format: csv, path: a}}", "run.mode=batch"], "source.files: `schema` is required for csv"),
        ([FILES % ", schema: a INT", "source.start=latest"], "source.start: all files are always read"),
        ([FILES % ", schema: a INT", "source.headers=true"], "source.headers: files have no headers"),
        ([FILES % ", schema: a INT", "value.format=text"], "value: files already have columns"),
        ([FILES % ", schema: a INT", "key.format=raw"], "key: files already have columns"),
        # clients
        (["kafka={cluster: a, bootstrap: ['a:1']}"], "kafka.bootstrap: give either `cluster` or `bootstrap`"),
        (["kafka.bootstrap=[a]"], 'kafka.bootstrap.0: "a" is not host:port'),
        (["kafka.security={protocol: SSL}"], "kafka.security: only with `bootstrap`"),
        (["kafka={bootstrap: ['a:1'], security: {username: u}}"], "security.username: PLAINTEXT has no login"),
        (["kafka={bootstrap: ['a:1'], security: {protocol: SASL_SSL}}"], "kafka.security: SASL_SSL needs `mechanism`"),
        (["kafka={bootstrap: ['a:1'], security: {ca: f}}"], "kafka.security.ca: PLAINTEXT has no TLS"),
        (
            ["kafka={bootstrap: ['a:1'], security: {protocol: SSL, cert: f}}"],
            "kafka.security: give both `cert` and `key`",
        ),
        (["kafka.options.group.id=a"], "kafka.options.group.id: cannot be set here; the checkpoint, not a group"),
        (["kafka.options.enable.auto.commit=true"], "kafka.options.enable.auto.commit: cannot be set here; the check"),
        (["kafka.options.auto.offset.reset=latest"], "auto.offset.reset: cannot be set here; use `source.start`"),
        (["kafka.options.value.deserializer=x"], "kafka.options.value.deserializer: cannot be set here; `key` and"),
        (["kafka.options.kafka.a=1"], "kafka.options.kafka.a: must not have Spark's prefix here; write a"),
        (
            ["sink={type: topic, topic: {topic: out, options: {key.serializer: x}}}"],
            "sink.topic.options.key.serializer: cannot be set here",
        ),
        (["kafka.options.fetch.max.bytes=abc"], 'fetch.max.bytes: must be a whole number, not "abc"'),
        (["kafka.options.fetch.max.bytes=2147483648"], "fetch.max.bytes: must be from 0 to 2147483647"),
        (["kafka.options.check.crcs=1"], 'check.crcs: must be true or false, not "1"'),
        ([EXACTLY % ", options: {linger.ms: 1.5}"], 'options.linger.ms: must be a whole number, not "1.5"'),
        ([EXACTLY % ", options: {compression.type: zstdd}"], '"zstdd" is not one of none, gzip, snappy, lz4, zstd'),
        # rows
        (["value.format=json"], "value: json needs a `schema`"),
        (["value.format=avro"], "value: avro needs a `schema` or a `registry`"),
        (["key={format: text, schema: a INT}"], "key.schema: text has one column and takes no schema"),
        (["value={format: text, registry: {url: u}}"], "value.registry: only avro, protobuf and json use a registry"),
        (["value={format: avro, registry: {url: u}}"], 'registry.url: "u" is not the URL of a registry'),
        (
            ["value={format: avro, registry: {url: http://u}}", "source={topics: [a, b]}"],
            "value.registry: several topics have several subjects; which schema do the columns follow?",
        ),
        (["value={format: avro, registry: {url: http://u, ca: a}}"], "value.registry.ca: http has no TLS"),
        (["value={format: avro, registry: {url: https://u, cert: a}}"], "registry: give both `cert` and `key`"),
        (["value={format: avro, registry: {url: http://u, password: xyz}}"], "registry: a password needs a `username`"),
        (
            ["value={format: avro, registry: {url: http://u, username: a, token: b}}"],
            "registry.token: give either a token or a user",
        ),
        (["value={format: text, mode: lenient}"], "value.mode: mode applies only to json, not to text"),
        (["value={format: text, csv: {null: x}}"], "value.csv: applies only to csv; the format is text"),
        (["value={format: csv, schema: a INT, csv: {header: true}}"], "value.csv.header: a record is a single line"),
        (["key={format: json, schema: a INT, bad_rows: {action: drop}}"], "key.bad_rows: a record is bad as a whole"),
        ([DEAD % ""], "value.bad_rows: dead_letter needs a `topic`"),
        ([DEAD % ", topic: orders"], "value.bad_rows.topic: orders is read by this job"),
        (
            [DEAD % ", topic: out", "sink={type: topic, topic: {topic: out}}"],
            "value.bad_rows.topic: out is also the topic for good rows",
        ),
        (
            ["value={format: json, schema: a INT, bad_rows: {topic: t, action: drop}}"],
            "value.bad_rows.topic: action drop uses no topic",
        ),
        (
            ["value={format: json, schema: a INT, bad_rows: {max: 1}}"],
            "value.bad_rows: action fail stops at the first bad row",
        ),
        (["transform={sql: SELECT 1, file: a.sql}"], "transform: has sql and file; give only one of"),
        (["transform.steps=[{name: a}]"], "transform.steps.0: a step needs either `sql` or `file`"),
        (["transform.steps=[{name: Source, sql: s}]"], 'transform.steps.0.name: a view "Source" already exists'),
        (
            ["transform.steps=[{name: a, sql: s}, {name: A, sql: s}]"],
            'transform.steps.1.name: a view "A" already exists',
        ),
        (["transform.watermark={column: ts, delay: soon}"], 'transform.watermark.delay: "soon" is not a duration'),
        (
            ["transform.deduplicate={keys: [id], within: 1 hour}"],
            "transform.deduplicate.within: needs a watermark; without one, rows would be kept forever",
        ),
        (
            ["transform.lookups={source: {format: parquet, path: a}}"],
            'lookups.source: a view "source" already exists',
        ),
        (
            ["transform.lookups={a-b: {format: parquet, path: a}}"],
            'transform.lookups.a-b: "a-b" is not a valid view name',
        ),
        (["transform.lookups={a: {format: parquet}}"], "transform.lookups.a: parquet needs a `path`"),
        (["transform.lookups={a: {format: csv, path: a}}"], "transform.lookups.a: csv needs a `schema`"),
        (["transform.lookups={a: {format: jdbc, path: x}}"], "transform.lookups.a.path: jdbc has no path"),
        (["transform.lookups={a: {format: jdbc}}"], "transform.lookups.a: jdbc needs the option `url`"),
        # sink
        (["sink.type=parquet"], "sink: parquet needs a `path`"),
        (["sink.path=/a"], "sink.path: applies only to type parquet, json, csv, delta, iceberg, not none"),
        (
            ["sink={type: topic, path: a, topic: {topic: out}}"],
            "sink.path: applies only to type parquet, json, csv, delta",
        ),
        (["sink.type=topic"], "sink: type topic needs the block `topic`"),
        (["sink={type: none, topic: {topic: a}}"], "sink.topic: the type is none; set type: topic"),
        (["sink={type: json, path: a, csv: {header: true}}"], "sink.csv: applies only to type csv, not json"),
        (["sink={type: csv, path: a, compression: zstd}"], "sink.compression: Spark cannot write csv with zstd"),
        (["sink={type: csv, path: a, partition_by: [a, a]}"], "sink.partition_by: names a column twice"),
        (
            ["sink={type: csv, path: a, partition_by: [a, .b]}"],
            "sink.partition_by.1: nobody sees directories whose names begin with a dot; rename it in the SQL",
        ),
        (["sink={type: csv, path: a, mode: overwrite}"], "sink.mode: in mode available-now every batch would replace"),
        (
            ["sink={type: csv, path: a, mode: overwrite_partitions}", "run.mode=batch"],
            "sink.mode: overwrite_partitions needs `partition_by`",
        ),
        (["sink={type: iceberg, path: a}"], "sink: type iceberg needs the block `iceberg`"),
        (["sink={type: iceberg, iceberg: {table: a.b}}"], "sink: iceberg needs a `path`"),
        ([ICEBERG % "orders"], 'sink.iceberg.table: "orders" is not the name of a table; its namespace comes first'),
        ([ICEBERG % "shop..orders"], 'sink.iceberg.table: "shop..orders" is not the name of a table'),
        ([ICEBERG % "a.b, catalog: {name: a-b}"], 'sink.iceberg.catalog.name: "a-b" is not allowed here'),
        ([CATALOG % "hadoop, url: 'jdbc:sqlite:a'"], "catalog.url: applies only to type jdbc, rest, not hadoop"),
        ([CATALOG % "hadoop, options: {warehouse: a}"], "catalog.options.warehouse: has its own key: sink.path"),
        ([CATALOG % "jdbc"], "sink.iceberg.catalog: type jdbc needs a `url`"),
        ([CATALOG % "jdbc, url: 'postgresql:a'"], "sink.iceberg.catalog.url: must start with jdbc:"),
        ([CATALOG % "jdbc, url: 'jdbc:mysql:a'"], "catalog.url: needs the database's driver; spark.jars"),
        ([CATALOG % "jdbc, url: 'jdbc:sqlite:a', token: abcxyz"], "catalog.token: applies only to type rest, not jdbc"),
        ([CATALOG % "jdbc, url: 'jdbc:sqlite:a', password: abcxyz"], "catalog: a password needs a `user`"),
        ([CATALOG % "jdbc, url: 'jdbc:sqlite:a', options: {uri: u}"], "catalog.options.uri: has its own key: url"),
        ([CATALOG % "rest, url: 'http://a'"], "sink.path: a rest catalog decides itself where its tables are"),
        ([REST % "rest"], "sink.iceberg.catalog: type rest needs a `url`"),
        ([REST % "rest, url: a"], 'sink.iceberg.catalog.url: "a" is not the URL of a catalog; https://'),
        (
            [REST % "rest, url: 'http://a', user: u, token: abcxyz"],
            "catalog.token: give either user or token, not both",
        ),
        ([REST % "rest, url: 'http://a', credential: abcxyz"], "sink.iceberg.catalog.credential: must be id:secret"),
        ([REST % "rest, url: 'http://a', options: {warehouse: a}"], "has its own key: sink.iceberg.catalog.warehouse"),
        ([REST % "jdbc, url: 'jdbc:sqlite:a'"], "sink: iceberg needs a `path`"),
        ([ICEBERG % "a.b", "sink.mode=upsert"], "sink: upsert needs `keys`; the columns that identify a row"),
        ([ICEBERG % "a.b", "sink.keys=[id]"], "sink.keys: append takes no keys; use mode: upsert"),
        (
            [DELTA, "sink.target_file_mb=64"],
            "sink.target_file_mb: applies only to type parquet, json, csv, iceberg, not",
        ),
        ([DELTA, "sink.compact.expire_after=soon"], 'sink.compact.expire_after: "soon" is not a duration; 30d'),
        (
            [DELTA, "sink.compact.expire_after=6d"],
            "sink.compact.expire_after: files of writers that have not committed",
        ),
        ([ICEBERG % "a.b", "sink.compact.expire_after=23h"], "as files that nobody needs: at least 1d"),
        (
            ["sink={type: csv, path: a, compact: {expire_after: 9d}}"],
            "expire_after: applies only to type delta, iceberg, not csv",
        ),
        ([DELTA, "sink.mode=upsert"], "sink: upsert needs `keys`; the columns that identify a row"),
        ([DELTA, "sink.keys=[id]"], "sink.keys: append takes no keys; use mode: upsert"),
        (["sink={type: csv, path: a, mode: upsert}"], "sink.mode: upsert applies only to type delta, iceberg, not csv"),
        ([ICEBERG % "a.b", "run.output=update"], "run.output: a sink of type iceberg cannot replace groups of an"),
        ([ICEBERG % "a.b", "sink.mode=overwrite"], "sink.mode: in mode available-now every batch would replace"),
        (["sink={type: csv, path: a, schema_changes: add_columns}"], "sink.schema_changes: applies only to type"),
        (["sink={type: topic, topic: {topic: a, format: avro}}"], "sink.topic: avro needs a `schema`"),
        (
            ["sink={type: topic, topic: {topic: a, schema: a INT}}"],
            "sink.topic.schema: only avro and protobuf take a schema, not json",
        ),
        (["sink={type: topic, topic: {topic: a, format: protobuf}}"], "sink.topic: protobuf needs a `schema`"),
        (["value={format: protobuf}"], "value: protobuf needs a `schema` or a `registry`"),
        (["value={format: text, message: a.B}"], "value.message: applies only to protobuf, not to text"),
        (["sink={type: topic, topic: {topic: a, message: B}}"], "sink.topic.message: applies only to protobuf"),
        (["sink={type: csv, path: 's3://lake/a'}"], "sink.path: Spark's scheme for S3 is s3a, not s3; s3a://lake/a"),
        (["s3={endpoint: 'http://a'}"], "s3: no path of this job begins with s3a://; remove the block"),
        ([S3, "s3.endpoint=host:9000"], 's3.endpoint: "host:9000" is not the URL of an object store'),
        ([S3, "s3.path_style=false"], "s3.path_style: only with an `endpoint`"),
        (
            [S3, "spark.conf={spark.hadoop.fs.s3a.bucket.lake.secret.key: geheim}"],
            "a key of an object store does not belong into a file; leave it out",
        ),
        ([REGISTRY % "format: csv"], "sink.topic.registry: only avro, protobuf and json use a registry, not csv"),
        ([REGISTRY.replace("u}", "u, auto_register: true}") % "format: avro"], "auto_register: needs a schema"),
        ([REGISTRY.replace("u}", "u, subject_naming: record}") % "format: avro"], "subject_naming: needs a schema"),
        (
            [REGISTRY.replace("u}", "u, subject_naming: record, subject: s}") % "format: avro"],
            "sink.topic.registry.subject_naming: the subject is given",
        ),
        (
            ["sink={type: topic, topic: {topic: a, create: {partitions: 1, replication: 0}}}"],
            "must be at least 1, or -1",
        ),
        (["sink={type: topic, topic: {topic: orders}}"], "sink.topic.topic: orders is read by this job"),
        ([EXACTLY % "", "run.mode=batch"], "sink.topic.delivery: exactly-once needs a checkpoint"),
        ([EXACTLY % ", acks: '1'"], "sink.topic.acks: exactly-once needs acks: all"),
        (
            [EXACTLY % ", options: {enable.idempotence: false}"],
            "sink.topic.options.enable.idempotence: exactly-once needs it",
        ),
        ([EXACTLY % ", options: {transactional.id: a}"], "cannot be set here; use `sink.topic.delivery`"),
        (
            ["source={pattern: 'o.*'}", "sink={type: topic, topic: {topic: out}}"],
            "topic.topic: out is read by this job",
        ),
        ([SQLITE % ", mode: upsert"], "sink.jdbc: upsert needs `keys`"),
        ([SQLITE % ", keys: [a]"], "sink.jdbc.keys: append takes no keys"),
        ([SQLITE % ", options: {url: a}"], "sink.jdbc.options.url: has its own key"),
        (["sink={type: jdbc, jdbc: {url: 'postgresql:a', table: t}}"], "sink.jdbc.url: must start with jdbc:"),
        (["sink={type: jdbc, jdbc: {url: 'jdbc:mysql:a', table: t}}"], "sink.jdbc: needs `driver_jar`"),
        # run
        (["run.output=update", "run.mode=batch"], "run.output: mode batch writes every group once"),
        (
            ["run.output=update", "sink={type: csv, path: a}"],
            "run.output: a sink of type csv cannot replace groups of an",
        ),
        (["run.output=complete", "sink={type: csv, path: a}"], "earlier batch unless `sink.mode` is overwrite"),
        (["run.output=update", SQLITE % ""], "run.output: output update would add every group again"),
        (["run.every=5s"], "run.every: mode available-now does not wait between batches"),
        (["run.every=often", "run.mode=continuous"], 'run.every: "often" is not a duration'),
        (["run.retries.backoff=x"], 'run.retries.backoff: "x" is not a duration'),
        (["run.stop_after.rows=5", "run.mode=batch"], "run.stop_after: mode batch stops at `source.end`"),
        (["run.stop_after.idle=5s"], "run.stop_after.idle: mode available-now stops by itself"),
        (["run.listen=9464"], 'run.listen: "9464" is not host:port'),
        (["spark.master=mesos://a"], 'spark.master: "mesos://a" is not a Spark master'),
        (["spark.master=local[0]"], 'spark.master: "local[0]" is not a Spark master'),
        (["spark.master='local[2,99999999999]'"], "is not a Spark master"),
        (["spark.driver_memory='1024'"], 'spark.driver_memory: "1024" is not a size'),
        (["spark.driver_memory=10m"], "spark.driver_memory: Spark needs at least 450m"),
        (["spark.executor_memory=449M"], "spark.executor_memory: Spark needs at least 450m"),
        (["source={topics: [a], min_partitions: 2147483648}"], "min_partitions: must be at most 2147483647"),
        ([EXACTLY % ", create: {partitions: 1, replication: 32768}"], "replication: must be at most 32767"),
        (["spark.driver_memory=lots"], 'spark.driver_memory: "lots" is not a size'),
        (["spark.conf.sql.a=1"], "spark.conf.sql.a: Spark's settings start with spark."),
        (
            ["spark.conf.spark.master=local[1]"],
            "spark.conf.spark.master: has a key of its own, and no effect here; set",
        ),
        (["spark.conf.spark.executor.memory=4g"], "no effect here; set spark.executor_memory of the job itself"),
        (["spark.conf.spark.app.name=a"], "no effect here; set name of the job itself"),
        (["spark.conf.spark.submit.deployMode=cluster"], "deployMode: the driver must run on kctl's machine"),
        (
            ["spark.conf.spark.driver.extraJavaOptions=-Xss4m -Xmx2g"],
            "driver.extraJavaOptions: Spark refuses -Xmx: it sets the heap's size itself; spark.driver_memory: 4g",
        ),
        (["spark.conf.spark.executor.defaultJavaOptions=-Xmx2g"], "the heap's size itself; spark.executor_memory: 4g"),
        (["checks=[{sql: SELECT 1, expect: [1]}]"], "checks.0.expect: must be a single value"),
    ],
)
def test_rules(sets: list[str], told: str) -> None:
    found = mistakes(SMALL, *sets)
    assert [line for line in found if told in line], found
    assert len(found) <= 3, found


@pytest.mark.parametrize(
    "sets",
    [
        ["source={topics: [a], start: {a: {0: latest, 1: 5}}, end: {a: {0: 7}}}", "run.mode=batch"],
        ["source.start=2026-11-01T00:00:00Z"],
        ["source.start=-1h"],
        [FILES % "", "run.mode=batch"],
        ["source={files: {format: csv, path: a, schema: b INT}}", "value={format: csv, bad_rows: {action: drop}}"],
        ["run.output=complete", "sink={type: csv, path: a, mode: overwrite}"],
        ["run.output=update", SQLITE % ", mode: upsert, keys: [id]"],
        [WINDOWS, "transform.deduplicate={keys: [id], within: 1h30m}"],
        ["sink={type: topic, topic: {topic: orders, kafka: {bootstrap: ['b:1']}}}"],
        ["sink={type: delta, path: a}"],
        [ICEBERG % "a.b", "sink.mode=upsert", "sink.keys=[id]", "run.output=update"],
        [ICEBERG % "a.b", "sink.mode=overwrite_partitions", "sink.partition_by=[day]"],
        [DELTA, "sink.mode=upsert", "sink.keys=[id]", "run.output=update", "sink.schema_changes=add_columns"],
        [DELTA, "sink.mode=overwrite_partitions", "sink.partition_by=[day]"],
        [ICEBERG % "shop.eu.orders", "sink.compression=zstd", "sink.schema_changes=add_columns"],
        ["kafka={bootstrap: ['a:1'], security: {protocol: SASL_SSL, mechanism: PLAIN, username: u, password: p}}"],
        ["spark.master=local[4]"],
        ["run={mode: continuous, every: 30s, stop_after: {idle: 1m}}"],
    ],
)
def test_what_goes_together(sets: list[str]) -> None:
    loaded(sets=sets)


def test_rules_do_not_repeat_what_a_wrong_value_caused() -> None:
    assert len(mistakes("version: 1\nname: a\nsource: {topics: orders}\nsink: {type: parqet}\n")) == 2
    assert len(mistakes("version: 1\nname: a\nsource: {topics: orders}\nsink: {type: csv}\n")) == 2
