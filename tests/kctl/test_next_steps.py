"""The hints of kctl for names that do not exist, and for refusals by a broker."""

from __future__ import annotations

import io
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkad import __version__
from kafkad.api.describe_configs import _UNREAD
from kafkad.errors import ErrorCode, StorageError
from kafkad.meta.refusals import storage_refused
from kafkad.meta.store import ConnectionLoss
from kafkad.wire.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from kctl.cli import COMMANDS, MEANT
from kctl.errors import MAY_STILL_BE_DONE, Exit, failure
from kctl.settings import Settings
from kctl.texts.spelling import hints_of
from kctl.tokens.asking import token_failure
from kctl.topics.add_partitions import grow
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["reassign"], "kctl partitions reassign, "),
        (["reset-offsets", "--to-earliest"], "kctl groups reset-offsets"),
        (["rebalance", "g"], "kctl groups rebalance for a consumer group"),
        (["spark-submit", "job.yaml"], "kctl etl run JOB.yaml"),
        (["topcs"], 'did you mean "topics"?'),
        (["dump-segment", "--print-data-log", "x.log"], "records are printed anyway; --kafka-format prints"),
        (["dump-segment", "--print", "x.log"], "records are printed anyway; --batches prints batches"),
        (["dump-segment", "--files", "x.log"], "kctl dump-segment FILE"),
    ],
)
def test_what_is_meant_by_what_there_is_not(kctl: Kctl, words: list[str], hint: str) -> None:
    ran = kctl(*words)
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert hint in ran.err


def test_no_command_is_hidden_by_a_hint(kctl: Kctl) -> None:
    assert not MEANT.keys() & COMMANDS.keys()
    for hint in MEANT.values():
        noun = hint.removeprefix("kctl ").split()[0].rstrip(",;")
        assert noun in COMMANDS, hint


def test_version_as_an_option(kctl: Kctl) -> None:
    assert kctl("--version") == kctl("version")
    assert __version__ in kctl("--version", "-o", "json").out
    assert kctl("-b", "127.0.0.1:1", "--version") == kctl("-b", "127.0.0.1:1", "version")
    assert kctl("-o", "json", "--version") == kctl("-o", "json", "version")


def test_help_as_a_command(kctl: Kctl) -> None:
    assert kctl("help").out == kctl("--help").out
    for words in (["topics"], ["groups", "reset-offsets"], ["produce"], ["topic", "ls"]):
        assert kctl("help", *words).out == kctl(*words, "--help").out
    ran = kctl("help", "topics", "lst")
    assert (ran.code, 'did you mean "list"?' in ran.err) == (Exit.USAGE, True)


def test_what_undoes_a_change_is_for_the_same_cluster(
    on_broker: Kctl, broker: KafkadProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("sesame\n"))
    here = ("--undo-dir", tmp_path)
    for words in (
        ("topics", "create", "undo", "-p", 1),
        ("topics", "alter", "undo", "--config", "retention.ms=1d"),
        ("configs", "set", "topic/undo", "retention.ms=2d", "segment.bytes=1MiB"),
        ("configs", "unset", "topic/undo", "retention.ms"),
        ("groups", "reset-offsets", "undo", "--topic", "undo", "--to", 0, *here),
        ("groups", "clone", "undo", "undo-copy", *here),
        ("groups", "delete-offsets", "undo", "--topic", "undo", *here),
        ("groups", "delete", "undo-copy", *here),
        ("users", "set-scram", "undo"),
    ):
        ran = on_broker(*words, "-y")
        (line,) = [line for line in ran.err.splitlines() if line.startswith("undo: ")]
        for command in line.removeprefix("undo: ").split("; "):
            assert command.startswith(f"kctl -b {broker.bootstrap} "), command


def test_what_undoes_a_change_takes_no_name_for_an_option(
    kctl: Kctl, on_broker: Kctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # undo files go there
    on_broker("topics", "create", "-y", "-p", 1, "--", "-undo")
    on_broker("groups", "reset-offsets", "-y", "--topic", "-undo", "--to", 0, "--", "-kept")
    for words in (
        ("topics", "create", "-y", "-p", 1, "--", "-undone"),
        ("topics", "create", "-y", "-p", 1, "--", "-"),
        ("groups", "reset-offsets", "-y", "--topic", "-undo", "--to", 0, "--", "-group"),
        ("groups", "delete-offsets", "-y", "--topic", "-undo", "--", "-kept"),
        ("groups", "delete", "-y", "--", "-kept"),
    ):
        (line,) = [line for line in on_broker(*words).err.splitlines() if line.startswith("undo: ")]
        ran = kctl("-y", *shlex.split(line.removeprefix("undo: kctl ")))
        assert ran.code == Exit.DONE, (line, ran.err)


def test_a_column_is_known_by_its_header_in_any_case(on_broker: Kctl) -> None:
    on_broker("topics", "create", "next-steps", "-y")
    ran = on_broker("topics", "list", "--columns", "topic,size", "--sort", "-size")
    assert (ran.code, ran.out.splitlines()[0].split()) == (Exit.DONE, ["TOPIC", "SIZE"])


@pytest.mark.parametrize(("name", "option"), [("ord*", "--match 'ord*'"), ("^ord.*", "--regex '^ord.*'")])
def test_pattern_in_the_place_of_a_name(on_broker: Kctl, name: str, option: str) -> None:
    for words in (("topics", "list"), ("topics", "describe"), ("consume",), ("groups", "describe")):
        ran = on_broker(*words, name)
        assert ran.code != Exit.DONE
        assert f"names are meant literally; this is a pattern: {option}" in ran.err, words


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.PRODUCER_FENCED,
    ],
)
def test_refusals_say_what_to_do(code: ErrorCode) -> None:
    (hint,) = failure(code, "topic x").hints
    assert hint
    assert failure(code, "topic x", hints=["better"]).hints == ("better",)


@pytest.mark.parametrize("validate_only", [True, False])
def test_only_a_change_may_still_be_carried_out(validate_only: bool) -> None:
    timed_out = CreatePartitionsTopicResult(name="t", error_code=ErrorCode.REQUEST_TIMED_OUT)
    answer = CreatePartitionsResponse(results=[timed_out])
    session: Any = SimpleNamespace(broker_timeout_ms=900, ask_controller=lambda request, codes: answer)
    (hint,) = grow(session, {"t": 2}, validate_only=validate_only)["t"].hints
    assert "--timeout 60s waits longer" in hint
    assert (MAY_STILL_BE_DONE in hint) is not validate_only


def test_no_dump_of_the_request_is_told() -> None:
    """Kafka's message to who may not ask for the moves under way."""
    dump = "Request(processor=5, connectionId=h:1-h:2-0-1, buffer=java.nio.HeapByteBuffer[pos=0], envelope=None)"
    for message in (f"Request {dump} is not authorized.", f"{dump} needs CLUSTER_ACTION permission."):
        refused = failure(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the list of moves is refused", message)
        assert refused.with_code == "the list of moves is refused (CLUSTER_AUTHORIZATION_FAILED)"


def test_who_may_allow_it_is_told_what_not_with_whose_login() -> None:
    """The hint is for another person: with the context of who was refused it would be refused, too."""
    settings = Settings()
    settings.context = "alice"
    (hint,) = hints_of(settings, failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED, 'topic "orders"'))
    assert "acls add --allow User:NAME --topic TOPIC with" in hint and "acls check" in hint
    assert "alice" not in hint


def test_no_pattern_is_advised_to_a_command_that_takes_none(on_broker: Kctl) -> None:
    for words in (
        ("configs", "describe", "topic/nope*"),
        ("topics", "create", "x", "--like", "nope*"),
        ("produce", "nope*", "--value", "v"),
        ("copy", "nope*", "b"),
        ("txns", "producers", "nope*"),
        ("perf", "consume", "--topic", "nope*"),
    ):
        ran = on_broker(*words)
        assert ran.code != Exit.DONE and "nope*" in ran.err and "--match" not in ran.err, words
    ran = on_broker("partitions", "plan", "--rf", 1, "--topics", "nope*")
    assert (ran.code, 'no topic matches "nope*"' in ran.err, "--match" in ran.err) == (Exit.NOT_FOUND, True, False)


def test_a_clone_that_is_there_already(on_broker: Kctl) -> None:
    on_broker("topics", "create", "next-clone", "next-clone2", "-y")
    ran = on_broker("topics", "clone", "next-clone", "next-clone2", "-y")
    assert (ran.code, "exists already" in ran.err, "--if-not-exists" in ran.err) == (Exit.FAILED, True, False)


def test_the_disk_of_the_metadata_is_not_taken_for_a_log_directory() -> None:
    full = ConnectionLoss("metadata", "/data/kafkad-metadata.journal cannot be written: No space left on device")
    code = ErrorCode.KAFKA_STORAGE_ERROR
    for of_metadata in (
        failure(code, "topic x", storage_refused(full).message),
        failure(code, "topic x", _UNREAD),
        token_failure(code, "no token was made"),
    ):
        assert of_metadata.hints[0].startswith("see to the disk of kafkad.metadata.dir, or to ZooKeeper")
    for of_directory in (StorageError("/metadata", "/metadata cannot be written").message, None):
        (hint,) = failure(code, "partition x-0", of_directory).hints
        assert hint == "a log directory of that broker has failed, or its disk is full: kctl brokers log-dirs"
