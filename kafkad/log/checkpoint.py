"""The small text files of a log directory and of a partition, as Kafka writes them.

Every function that reads returns nothing (None, or an empty dict) where there is no file, and raises CheckpointError
where there is a broken one; a broken file is never replaced behind the operator's back. Writing goes through
`Files.write_file`, so that after a crash the old or the new content is there, whole.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from kafkad.log.files import Files
from kafkad.names import TopicPartition, id_from_text, id_text

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
DAMAGED_OFFSETS = "damaged-offset-checkpoint"
"""Not one of Kafka's, which does not mind it: from where on a log is checked at the next start, if it is damaged."""
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
KRAFT_METADATA = "__cluster_metadata-0"
"""Of a Kafka in KRaft mode, or of one that has come back from it; no topic here has this name."""
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)
_REMEDIES = {
    RECOVERY_POINTS: "Delete it, and every log in its directory is checked from the beginning",
    HIGH_WATERMARKS: "Delete it, and high watermarks are found anew",
    START_OFFSETS: "Restore it from a copy, or delete it: records removed by DeleteRecords may then come back",
    CLEANED_OFFSETS: "Delete it, and compaction starts over",
    DAMAGED_OFFSETS: "Delete it; kctl check-log finds the damage again",
    PARTITION_METADATA: "Restore the topic id from a copy of this file in another partition of the topic",
    META_PROPERTIES: "Restore it from a copy, or from another log directory of the same broker",
}
KRAFT_REMEDY = (
    "kafkad takes over the directories of a Kafka with ZooKeeper only. Give kafkad an empty directory in log.dirs, and "
    "copy the topics from the running Kafka (kctl copy --to-context, or MirrorMaker)"
)


class CheckpointError(ValueError):
    """A small file that makes no sense, or is not for this broker: which, where in it, and what to do."""

    def __init__(self, path: str, line: int, what: str, remedy: str | None = None) -> None:
        remedy = remedy or _REMEDIES.get(os.path.basename(path), "Restore it from a copy")
        super().__init__(f"{path}, line {line}: {what}. {remedy}.")
        self.path = path


class KraftError(CheckpointError):
    """Of a log directory of a Kafka in KRaft mode, which is not taken over."""


def _read_lines(path: str, files: Files) -> list[str] | None:
    try:
        return files.read(path).decode().splitlines()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CheckpointError(path, 1, f"byte {error.start} is not text") from None


# --- checkpoints: a version, a count, and as many lines


def _read_checkpoint(path: str, files: Files) -> list[list[str]]:
    lines = _read_lines(path, files)
    if not lines:
        return []  # Kafka creates some of them empty
    if lines[0] != "0":
        raise CheckpointError(path, 1, f"{lines[0]!r} where version 0 was expected")
    count = _number(path, 2, lines[1] if len(lines) > 1 else "")
    entries = [line.split() for line in lines[2:]]
    if len(entries) != count:
        raise CheckpointError(path, 2, f"{count} entries were announced, {len(entries)} are there")
    return entries


def read_offsets(path: str, files: Files) -> dict[TopicPartition, int]:
    """One offset a partition, in the order of the file."""
    offsets = {}
    for number, fields in enumerate(_read_checkpoint(path, files), start=3):
        if len(fields) != 3:
            raise CheckpointError(path, number, f"{' '.join(fields)!r} is not 'topic partition offset'")
        topic, partition, offset = fields
        offsets[TopicPartition(topic, _number(path, number, partition))] = _number(path, number, offset)
    return offsets


def write_offsets(path: str, offsets: Mapping[TopicPartition, int], files: Files) -> None:
    entries = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    files.write_file(path, "".join(f"{line}\n" for line in ("0", len(entries), *entries)).encode())


def _number(path: str, line: int, text: str) -> int:
    if _NUMBER.fullmatch(text) and -1 <= (number := int(text)) < 2**63:
        return number
    raise CheckpointError(path, line, f"{text!r} is not a number that belongs there")


def _quoted(lines: list[str], index: int) -> str:
    return repr(lines[index]) if index < len(lines) else "nothing"


# --- partition.metadata


def read_topic_id(path: str, files: Files) -> bytes | None:
    lines = _read_lines(path, files)
    if not lines:
        return None  # an empty one is what a crash may leave of a partition that had just been made
    if lines[0] != "version: 0":
        raise CheckpointError(path, 1, f"{lines[0]!r} where 'version: 0' was expected")
    if len(lines) < 2 or not lines[1].startswith("topic_id: "):
        raise CheckpointError(path, 2, f"{_quoted(lines, 1)} where 'topic_id: …' was expected")
    try:
        return topic_id_from_text(lines[1].removeprefix("topic_id: "))
    except ValueError as error:
        raise CheckpointError(path, 2, str(error)) from None


topic_id_from_text = functools.lru_cache(maxsize=4096)(id_from_text)
"""The partitions of a topic share one id in memory."""


def write_topic_id(path: str, topic_id: bytes, files: Files, *, durable: bool = True) -> None:
    files.write_file(path, f"version: 0\ntopic_id: {id_text(topic_id)}".encode(), durable=durable)


# --- meta.properties


@dataclass(frozen=True, kw_only=True)
class MetaProperties:
    """The identity of a log directory; None for what it does not say, which its next broker fills in, as Kafka does.
    `others` are properties that kafkad has no use for and keeps."""

    broker_id: int | None
    cluster_id: str | None
    others: tuple[tuple[str, str], ...] = ()


def read_meta_properties(path: str, files: Files) -> MetaProperties | None:
    """KraftError for the directory of a Kafka in KRaft mode, which this broker cannot take over."""
    lines = _read_lines(path, files)
    if lines is None:
        return None
    properties = {}
    line_of = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text and text[0] not in "#!":
            name, value = _property(text)
            properties[name] = value
            line_of[name] = number
    version = properties.pop("version", "0")  # as for Kafka, which reads a file without one
    if version == "1":
        node = properties.get("node.id", "?")
        found = f"version 1 is of a Kafka in KRaft mode (node.id={node})"
        raise KraftError(path, line_of["version"], found, KRAFT_REMEDY)
    if version != "0":
        raise CheckpointError(path, line_of["version"], f"version {version} where 0 was expected")
    broker = properties.pop("broker.id", None)
    broker_id = None if broker is None else _number(path, line_of["broker.id"], broker)
    cluster_id = properties.pop("cluster.id", None)
    return MetaProperties(broker_id=broker_id, cluster_id=cluster_id, others=tuple(properties.items()))


def encode_meta_properties(meta: MetaProperties, now_ms: int) -> bytes:
    """As Java's Properties would store it, date and all."""
    date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms / 1000))
    broker_id = None if meta.broker_id is None else str(meta.broker_id)
    properties = (("broker.id", broker_id), ("version", "0"), ("cluster.id", meta.cluster_id), *meta.others)
    lines = ["#", f"#{date}", *(f"{name}={_escaped(value)}" for name, value in properties if value is not None)]
    return "".join(f"{line}\n" for line in lines).encode()


def write_meta_properties(path: str, meta: MetaProperties, now_ms: int, files: Files) -> None:
    files.write_file(path, encode_meta_properties(meta, now_ms))


def _property(line: str) -> tuple[str, str]:
    match = re.match(r"((?:\\.|[^=:\s\\])*)\s*[=:]?\s*(.*)", line)
    assert match is not None  # every part may be empty
    return _unescaped(match[1]), _unescaped(match[2])


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _escaped(text: str) -> str:
    return re.sub(r"([\\=:#!])", r"\\\1", text)


# --- the marker of a clean shutdown


def write_clean_shutdown(directory: str, files: Files) -> None:
    """Everything in this log directory is on the disk and consistent: the next start need not look."""
    content = json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":"))
    files.write_file(os.path.join(directory, CLEAN_SHUTDOWN), content.encode())


def take_clean_shutdown(directory: str, files: Files) -> bool:
    """True if the marker was there; it is taken away, and that is durable, before anything can be written."""
    with contextlib.suppress(FileNotFoundError):
        files.unlink(os.path.join(directory, CLEAN_SHUTDOWN))
        files.sync_directory(directory)
        return True
    return False
