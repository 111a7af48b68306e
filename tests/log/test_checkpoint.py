"""The small files against those that real Kafka wrote, and what a broken one is answered with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.log import checkpoint
from kafkad.log.checkpoint import CheckpointError, MetaProperties
from kafkad.log.files import Files
from kafkad.names import TopicPartition
from tests.log.mutated import mutated

GOLDEN = Path(__file__).parent.parent / "golden" / "logs"
FILES = Files()
OFFSETS = sorted(GOLDEN.rglob("*-offset-checkpoint"))
TOPIC_IDS = sorted(GOLDEN.rglob("partition.metadata"))
WRITTEN_AT_MS = 1795241729_000  # Sat Nov 21 06:15:29 UTC 2026


def where(path: Path) -> str:
    return str(path.relative_to(GOLDEN))


@pytest.mark.parametrize("path", OFFSETS, ids=where)
def test_offsets_are_kafkas(path: Path, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    if path.stat().st_size == 0:
        assert checkpoint.read_offsets(str(path), FILES) == {}
        return
    checkpoint.write_offsets(copy, checkpoint.read_offsets(str(path), FILES), FILES)
    assert Path(copy).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", TOPIC_IDS, ids=where)
def test_topic_ids_are_kafkas(path: Path, tmp_path: Path) -> None:
    topic_id = checkpoint.read_topic_id(str(path), FILES)
    assert topic_id is not None
    copy = str(tmp_path / "copy")
    checkpoint.write_topic_id(copy, topic_id, FILES)
    assert Path(copy).read_bytes() == path.read_bytes()


def test_meta_properties_and_the_clean_marker_are_kafkas(tmp_path: Path) -> None:
    golden = GOLDEN / "main" / "meta.properties"
    meta = checkpoint.read_meta_properties(str(golden), FILES)
    assert meta == MetaProperties(broker_id=1, cluster_id="rqJN_tDlTSWz79bt_P852g")
    assert checkpoint.encode_meta_properties(meta, WRITTEN_AT_MS) == golden.read_bytes()
    checkpoint.write_clean_shutdown(str(tmp_path), FILES)
    marker = tmp_path / ".kafka_cleanshutdown"
    assert marker.read_bytes() == (GOLDEN / "main" / ".kafka_cleanshutdown").read_bytes()
    assert checkpoint.take_clean_shutdown(str(tmp_path), FILES)
    assert not checkpoint.take_clean_shutdown(str(tmp_path), FILES)


def test_meta_properties_without_a_version_are_of_version_0_as_for_kafka(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.META_PROPERTIES
    path.write_text("broker.id=1\ncluster.id=x\n")
    assert checkpoint.read_meta_properties(str(path), FILES) == MetaProperties(broker_id=1, cluster_id="x")


@pytest.mark.parametrize(
    ("content", "cluster"), [("", None), ("#\n", None), ("cluster.id=x\n", "x"), ("version=0\ncluster.id=x\n", "x")]
)
def test_meta_properties_need_not_say_whose_they_are_as_for_kafka(
    tmp_path: Path, content: str, cluster: str | None
) -> None:
    path = tmp_path / checkpoint.META_PROPERTIES
    path.write_text(content)
    meta = MetaProperties(broker_id=None, cluster_id=cluster)
    assert checkpoint.read_meta_properties(str(path), FILES) == meta
    checkpoint.write_meta_properties(str(path), meta, WRITTEN_AT_MS, FILES)
    assert checkpoint.read_meta_properties(str(path), FILES) == meta


def test_a_file_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "missing")
    assert checkpoint.read_offsets(path, FILES) == {}
    assert checkpoint.read_topic_id(path, FILES) is None
    assert checkpoint.read_meta_properties(path, FILES) is None


def test_offsets_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = str(tmp_path / checkpoint.RECOVERY_POINTS)
    offsets = {TopicPartition("b", 1): 2**62, TopicPartition("a", 0): 0}
    checkpoint.write_offsets(path, offsets, FILES)
    assert Path(path).read_text() == f"0\n2\nb 1 {2**62}\na 0 0\n"
    assert list(checkpoint.read_offsets(path, FILES).items()) == list(offsets.items())


@pytest.mark.parametrize(
    ("content", "line", "word"),
    [
        ("1\n0\n", 1, "version 0"),
        ("0\n", 2, "not a number"),
        ("0\ntwo\n", 2, "'two'"),
        ("0\n2\na 0 1\n", 2, "1 are there"),
        ("0\n1\na 0\n", 3, "topic partition offset"),
        ("0\n2\na 0 1\nb x 1\n", 4, "'x'"),
        ("0\n1\na 0 ١\n", 3, "not a number"),
        ("0\n1\na 0 9223372036854775808\n", 3, "not a number"),
        ("0\n1\na 0 -2\n", 3, "not a number"),
    ],
)
def test_a_broken_checkpoint_is_named_with_its_line_and_left_alone(
    tmp_path: Path, content: str, line: int, word: str
) -> None:
    path = tmp_path / checkpoint.RECOVERY_POINTS
    path.write_text(content)
    with pytest.raises(CheckpointError) as broken:
        checkpoint.read_offsets(str(path), FILES)
    assert str(broken.value).startswith(f"{path}, line {line}: ")
    assert word in str(broken.value)
    assert "Delete it, and every log" in str(broken.value)
    assert path.read_text() == content


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("version=1\nnode.id=3\ncluster.id=x\n", "KRaft"),
        ("version=7\nbroker.id=1\n", "version 7"),
        ("version=0\nbroker.id=one\n", "'one'"),
    ],
)
def test_broken_meta_properties_are_told(tmp_path: Path, content: str, word: str) -> None:
    path = tmp_path / checkpoint.META_PROPERTIES
    path.write_text(content)
    with pytest.raises(CheckpointError, match=word):
        checkpoint.read_meta_properties(str(path), FILES)


def test_of_a_directory_in_kraft_mode_is_said_that_it_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.META_PROPERTIES
    path.write_text("version=1\nnode.id=3\ncluster.id=x\n")
    with pytest.raises(CheckpointError) as broken:
        checkpoint.read_meta_properties(str(path), FILES)
    assert "of a Kafka with ZooKeeper only" in str(broken.value)
    assert "Restore" not in str(broken.value)


@pytest.mark.parametrize("content", ["version: 1\n", "version: 0\n", "version: 0\ntopic_id: short"])
def test_a_broken_topic_id_is_told(tmp_path: Path, content: str) -> None:
    path = tmp_path / checkpoint.PARTITION_METADATA
    path.write_text(content)
    with pytest.raises(CheckpointError, match=r"partition\.metadata, line"):
        checkpoint.read_topic_id(str(path), FILES)


VALUES = st.text(st.characters(codec="ascii", exclude_categories=("Cc", "Zs")), min_size=1)


@given(VALUES, st.dictionaries(st.sampled_from(("directory.id", "x.y")), VALUES), st.integers(0, 2**31 - 1))
def test_foreign_properties_survive(
    tmp_path_factory: pytest.TempPathFactory, cluster: str, others: dict[str, str], broker: int
) -> None:
    path = str(tmp_path_factory.getbasetemp() / "meta.properties")
    meta = MetaProperties(broker_id=broker, cluster_id=cluster, others=tuple(others.items()))
    checkpoint.write_meta_properties(path, meta, WRITTEN_AT_MS, FILES)
    assert checkpoint.read_meta_properties(path, FILES) == meta


READERS = (checkpoint.read_offsets, checkpoint.read_meta_properties, checkpoint.read_topic_id)
SAMPLES = [(GOLDEN / "main" / name).read_bytes() for name in ("meta.properties", checkpoint.HIGH_WATERMARKS)]


@given(st.sampled_from(READERS), mutated(*SAMPLES))
def test_whatever_is_in_a_file_it_is_read_or_told_broken(
    tmp_path_factory: pytest.TempPathFactory, read: Callable[[str, Files], object], content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "file"
    path.write_bytes(content)
    with contextlib.suppress(CheckpointError):
        read(str(path), FILES)
