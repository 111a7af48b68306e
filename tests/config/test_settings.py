"""The tables against what a real Kafka 3.9.2 (ZooKeeper mode) says about its own settings."""

import csv
import math
import re
from pathlib import Path

import pytest

from kafkad.config import BROKER_SETTINGS, TOPIC_SETTINGS, ConfigType, LogConfig, Setting, load
from kafkad.config.setting import AUTHORIZERS, some_of
from kafkad.config.values import parse, text_of

KAFKA = Path(__file__).parents[1] / "golden" / "settings-3.9.tsv"
OURS_BY_DESIGN = {"listeners", "log.dir", "socket.receive.buffer.bytes", "socket.send.buffer.bytes"}


def kafkas(scope: str) -> dict[str, dict[str, str]]:
    with KAFKA.open() as file:
        return {row["name"]: row for row in csv.DictReader(file, delimiter="\t") if row["scope"] == scope}


TABLES = {"broker": BROKER_SETTINGS, "topic": TOPIC_SETTINGS}


@pytest.mark.parametrize("scope", TABLES)
def test_every_setting_of_kafka_is_there_and_the_others_are_ours_or_hidden(scope: str) -> None:
    ours = {name for name, setting in TABLES[scope].items() if not setting.hidden}
    assert {name for name in ours if not name.startswith(("kafkad.", "http."))} == set(kafkas(scope))


@pytest.mark.parametrize("scope", TABLES)
def test_type_default_importance_and_mode_are_kafkas(scope: str) -> None:
    for name, row in kafkas(scope).items():
        setting = TABLES[scope][name]
        default = None if row["default"] == "<null>" else row["default"]
        assert setting.type is ConfigType[row["type"]], name
        assert setting.importance == row["importance"], name
        if name not in OURS_BY_DESIGN:
            assert text_of(setting.type, setting.default) == default, name
        if scope == "broker":
            assert setting.dynamic == row["dynamic"], name


@pytest.mark.parametrize("scope", TABLES)
def test_ranges_are_kafkas(scope: str) -> None:
    for name, row in kafkas(scope).items():
        bounds = re.fullmatch(r"\[(-?[0-9.]+),\.\.\.(?:,(-?[0-9.]+))?\]", row["valid"])
        if bounds is None:
            continue
        setting = TABLES[scope][name]
        low, high = float(bounds[1]), float(bounds[2] or "inf")
        assert accepts(setting, low), name
        assert not accepts(setting, low - 1), name
        if not math.isinf(high):
            assert accepts(setting, high), name
            assert not accepts(setting, high + 1), name


def accepts(setting: Setting, number: float) -> bool:
    text = str(number) if setting.type is ConfigType.DOUBLE else str(int(number))
    try:
        parse(setting, text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("scope", TABLES)
def test_defaults_are_valid_and_helped(scope: str) -> None:
    for setting in TABLES[scope].values():
        assert setting.help.endswith("."), setting.name
        assert len(setting.help) <= 110, setting.name
        assert not (setting.refused and setting.unused), setting.name
        if setting.default is not None and setting.valid is not None:
            assert setting.valid(setting.default) is None, setting.name


CODECS = "uncompressed, zstd, lz4, snappy, gzip, producer"
THROTTLED = "leader.replication.throttled.replicas"
PAIRS = "in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."


@pytest.mark.parametrize(
    ("name", "text", "shown", "complaint"),
    [
        ("segment.ms", "x", "x", "Not a number of type LONG"),
        ("segment.ms", "-1", "-1", "Value must be at least 1"),
        ("segment.bytes", "99999999999", "99999999999", "Not a number of type INT"),
        ("cleanup.policy", "foo", "foo", "String must be one of: compact, delete"),
        ("cleanup.policy", "delete,foo", "foo", "String must be one of: compact, delete"),
        ("compression.type", "foo", "foo", f"String must be one of: {CODECS}"),
        ("compression.gzip.level", "0", "0", "Value must be between 1 and 9 or equal to -1"),
        ("min.cleanable.dirty.ratio", "2", "2.0", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "z", "z", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "NaN", "NaN", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "0.5ff", "0.5ff", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "f", "f", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "1e999", "1e999", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "0_1", "0_1", "Not a number of type DOUBLE"),
        ("preallocate", "yes", "yes", "Expected value to be either true or false"),
        *(
            ("message.format.version", text, text, f"Version {text} is not a valid version")
            for text in ("9.9", "3.9-IV9", "0.8", "0.9.1", "1.5", "3.10", "3.9-IV00", "2.8-IV0-IV1", "0.8.2-IV0", "2.")
        ),
        (THROTTLED, "x", "[x]", f"{THROTTLED} must be the literal '*' or a list of replicas {PAIRS}"),
    ],
)  # fmt: skip
def test_complaints_are_kafkas_words(name: str, text: str, shown: str, complaint: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(TOPIC_SETTINGS[name], text)
    assert str(caught.value) == f"Invalid value {shown} for configuration {name}: {complaint}"


@pytest.mark.parametrize("text", ["0.25f", "0.25F", "+.25d", "25e-2D", "0.25"])
def test_doubles_are_read_as_java_reads_them(text: str) -> None:
    assert parse(TOPIC_SETTINGS["min.cleanable.dirty.ratio"], text) == 0.25
    assert LogConfig.resolve({"min.cleanable.dirty.ratio": text}, load(None, (), {})).min_cleanable_dirty_ratio == 0.25


def test_a_double_of_kafkas_that_is_no_number_counts_as_not_set() -> None:
    assert LogConfig.resolve({"min.cleanable.dirty.ratio": "NaN"}, load(None, (), {})).min_cleanable_dirty_ratio == 0.5


def test_blanks_are_taken_off_as_in_java() -> None:
    """Others than those of ASCII are a part of a password, or of a name."""
    assert parse(BROKER_SETTINGS["ssl.keystore.password"], " \t\u00a0hush\u3000\n") == "\u00a0hush\u3000"
    assert parse(BROKER_SETTINGS["ssl.cipher.suites"], " a ,\u00a0b\t") == ("a", "\u00a0b")
    rights = f"authorizer.class.name={AUTHORIZERS[0]}", "super.users= User:a ; User:b\u00a0"
    assert load(None, rights, {}).super_users == ("User:a", "User:b\u00a0")


def test_lists_throttles_and_versions_that_kafka_takes() -> None:
    assert parse(TOPIC_SETTINGS["cleanup.policy"], "") == ()
    assert parse(TOPIC_SETTINGS["cleanup.policy"], "compact, delete") == ("compact", "delete")
    assert parse(TOPIC_SETTINGS["leader.replication.throttled.replicas"], "*") == ("*",)
    assert parse(TOPIC_SETTINGS["leader.replication.throttled.replicas"], "0:1,1:2") == ("0:1", "1:2")
    for version in ("2.0", "0.10.2-IV0", "3.9-IV0", "3.0-IV1", "2.8.1", "0.8.0", "0.8.2.1", "3.7-IV4", "3.3.2-IV3"):
        assert parse(TOPIC_SETTINGS["message.format.version"], version) == version
    assert some_of("a")(("b",)) == "String must be one of: a"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (5.0, "5.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (0.0001, "1.0E-4"),
        (0.00015, "1.5E-4"),
        (9999999.0, "9999999.0"),
    ],
)
def test_doubles_look_as_in_java(value: float, text: str) -> None:
    assert text_of(ConfigType.DOUBLE, value) == text
