from __future__ import annotations

import pytest

from kafkad_etl.driver.failures import Thrown, failed, first_sentence, position, too_large

UNRESOLVED = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `amout` cannot be "
    "resolved. Did you mean one of the following? [`amount`, `id`]. SQLSTATE: 42703; line 2 pos 1;\n"
    "'Project [id#1L, 'amout]\n+- Relation"
)
SYNTAX = (
    "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM'. SQLSTATE: 42601 (line 1, pos 9)\n\n== SQL ==\nSELECT 1 FORM"
)
CONFIG = "org.apache.kafka.common.config.ConfigException"
ILLEGAL = "java.lang.IllegalArgumentException"
SDK = "software.amazon.awssdk"
MEANWHILE = (
    "Runtime file filtering is not possible: the table has been concurrently modified. Row-level operation scan "
    "snapshot ID: 18, current table snapshot ID: 69."
)
LOST = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was aged out by "
    "Kafka or the topic may have been deleted before all the data in the topic was processed."
)


def test_sql_is_located_and_keeps_its_suggestion() -> None:
    found = failed([Thrown("org.apache.spark.sql.catalyst.ExtendedAnalysisException", UNRESOLVED)], step="clean")
    assert (found.kind, found.step, found.line, found.column) == ("sql", "clean", 2, 2)
    assert found.text == (
        "A column, variable, or function parameter with name `amout` cannot be resolved. "
        "Did you mean one of the following? [`amount`, `id`]."
    )


def test_a_syntax_error_begins_with_an_empty_line() -> None:
    assert position(SYNTAX) == (1, 10)
    assert first_sentence(SYNTAX) == "Syntax error at or near 'FORM'."


OVERFLOW = """Job aborted due to stage failure: Task 0 in stage 0.0 failed: java.lang.ArithmeticException: long overflow
\tat java.base/java.lang.Math.multiplyExact(Math.java:1004)
\tat org.apache.spark.sql.catalyst.util.SparkDateTimeUtils.millisToMicros(SparkDateTimeUtils.scala:100)
\tat org.apache.spark.sql."""


def test_an_overflow_is_one_of_a_timestamp_where_spark_reads_records() -> None:
    inner = Thrown("java.lang.ArithmeticException", "long overflow")
    source = (
        "kafka010.KafkaRecordToRowConverter.$anonfun$toInternalRowWithHeaders$1(KafkaRecordToRowConverter.scala:48)"
    )
    found = failed([Thrown("org.apache.spark.SparkException", OVERFLOW + source), inner])
    assert (found.kind, found.text) == ("timestamp", "a record's timestamp is beyond what Spark can read")
    found = failed([Thrown("org.apache.spark.SparkException", OVERFLOW + "catalyst.expressions.A"), inner])
    assert (found.kind, found.text) == ("spark", "long overflow")


@pytest.mark.parametrize(
    ("name", "text", "kind", "retriable"),
    [
        ("java.lang.IllegalStateException", LOST, "data-loss", False),
        ("java.lang.IllegalStateException", MEANWHILE, "sink", True),
        (f"{SDK}.services.s3.model.S3Exception", "null (Service: S3, Status Code: 403, Request ID: 1)", "store", False),
        (f"{SDK}.services.s3.model.S3Exception", "The request signature we calculated does not match", "store", False),
        (f"{SDK}.services.s3.model.S3Exception", "null (Service: S3, Status Code: 503, Request ID: 1)", "store", True),
        (f"{SDK}.core.exception.SdkClientException", "Unable to execute HTTP request", "store", True),
        ("org.apache.hadoop.fs.s3a.UnknownStoreException", "`s3a://nix/': NoSuchBucket", "store", False),
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException", "This server …", "topic", False),
        ("org.apache.kafka.common.errors.TopicAuthorizationException", "Not authorized", "topic", False),
        ("org.apache.kafka.common.errors.SaslAuthenticationException", "invalid credentials", "topic", False),
        ("org.apache.spark.sql.AnalysisException", "[PATH_NOT_FOUND] Path does not exist: hdfs:/a.", "store", False),
        ("java.io.IOException", "No space left on device", "environment", False),
        ("java.lang.OutOfMemoryError", "Java heap space", "environment", False),
        ("java.lang.AssertionError", "should provide the same topic partitions in pre-fetched", "checkpoint", False),
        ("org.apache.kafka.common.errors.TimeoutException", "Timed out waiting for a node", "spark", True),
        (
            "org.apache.kafka.common.errors.TimeoutException",
            "Partition 5 of topic out with partition count 3 is not present in metadata after 60000 ms.",
            "topic",
            False,
        ),
        (
            "org.apache.spark.SparkRuntimeException",
            '[USER_RAISED_EXCEPTION] a row names partition 5, and topic "out" had 3 when the run began SQLSTATE: P0001',
            "topic",
            False,
        ),
        ("org.apache.kafka.common.errors.NotLeaderOrFollowerException", "moved", "spark", True),
        (CONFIG, "Invalid value abc for configuration linger.ms: Not a number of type LONG", "setting", False),
        (CONFIG, "No resolvable bootstrap urls given in bootstrap.servers", "spark", False),
        (ILLEGAL, "spark.sql.shuffle.partitions should be int, but was abc", "setting", False),
        (ILLEGAL, "spark.sql.ansi.enabled should be boolean, but was maybe", "setting", False),
        ("java.lang.NumberFormatException", "Illegal value for config key spark.cores.max: For", "setting", False),
        (
            "org.apache.spark.SparkIllegalArgumentException",
            "[INVALID_CONF_VALUE.TIME_ZONE] The value 'Mars/X' in the config is invalid. SQLSTATE: 22022",
            "setting",
            False,
        ),
        (
            "org.apache.spark.sql.AnalysisException",
            "Decimal scale (12) cannot be greater than precision (2).",
            "setting",
            False,
        ),
        ("java.net.ConnectException", "Connection refused", "spark", True),
        ("java.lang.ArithmeticException", "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", "spark", False),
    ],
)
def test_what_is_inside_tells_the_kind(name: str, text: str, kind: str, retriable: bool) -> None:
    outside = Thrown("org.apache.spark.sql.streaming.StreamingQueryException", "[STREAM_FAILED] Query terminated")
    found = failed([outside, Thrown("org.apache.spark.SparkException", "Job aborted"), Thrown(name, text)])
    assert (found.kind, found.retriable) == (kind, retriable)
    assert "STREAM_FAILED" not in found.text and "SQLSTATE" not in found.text


def test_a_refused_login_says_where_logins_are() -> None:
    found = failed([Thrown("org.apache.kafka.common.errors.SaslAuthenticationException", "Authentication failed")])
    assert found.text == "Authentication failed"
    assert "kafka.security" in found.hints[0]


TOO_LARGE = "The message is 9 bytes when serialized which is larger than "
MORE = "allows more, as far as max.message.bytes of the topic does"


@pytest.mark.parametrize(
    ("told", "hint"),
    [
        (
            f"{TOO_LARGE}8, which is the value of the max.request.size configuration.",
            f"kafka.options: {{max.request.size: …}} {MORE}",
        ),
        (
            f"{TOO_LARGE}the total memory buffer you have configured with the buffer.memory configuration.",
            f"kafka.options: {{buffer.memory: …}} {MORE}",
        ),
        (
            "The request included a message larger than the max message size the server will accept.",
            "kctl configs set topic/dlq max.message.bytes=… allows more",
        ),
    ],
)
def test_a_record_that_is_too_large_is_told_with_its_topic_and_what_limits_it(told: str, hint: str) -> None:
    found = too_large("dlq", "kafka.options", told)
    assert found.text == f'a record is too large for topic "dlq": {told}'
    assert (found.kind, found.retriable, found.hints) == ("sink", False, [hint])
