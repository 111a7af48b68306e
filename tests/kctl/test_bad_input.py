"""Input that makes no sense: the error says what, where and what next, and never takes it for a defect of kctl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kctl.errors import Exit
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl

FILES = [
    ["partitions", "apply", "{file}", "-y"],
    ["partitions", "status", "{file}"],
    ["partitions", "cancel", "{file}", "-y"],
    ["partitions", "elect", "{file}", "-y"],
    ["partitions", "plan", "--to", "1", "--from-file", "{file}"],
    ["topics", "create", "-f", "{file}", "-y"],
    ["topics", "truncate", "--offset-json-file", "{file}", "-y"],
    ["configs", "diff", "broker/1", "-f", "{file}"],
    ["dump-segment", "--avro", "{file}", "{segment}"],
]


@pytest.mark.parametrize("words", FILES, ids=lambda words: " ".join(words[:2]))
def test_a_file_that_is_no_text(on_broker: Kctl, tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "bad.json"
    file.write_bytes(b"{\n\xff}")
    segment = tmp_path / "00000000000000000000.log"
    segment.touch()
    ran = on_broker(*(word.format(file=file, segment=segment) for word in words))
    assert (ran.code, ran.err) == (Exit.USAGE, f"error: {file} is not a text file: byte 3 of it, 0xff, is not UTF-8\n")


@pytest.mark.parametrize("words", [*FILES, ["groups", "reset-offsets", "g", "--from-file", "{file}", "-y"]], ids=str)
def test_a_file_that_is_nested_too_deeply(on_broker: Kctl, tmp_path: Path, words: list[str]) -> None:
    file, segment = tmp_path / "deep.json", tmp_path / "00000000000000000000.log"
    file.write_text("[" * 100_000 + "]" * 100_000)
    segment.touch()
    ran = on_broker(*(word.format(file=file, segment=segment) for word in words))
    assert (ran.code, ran.err.startswith(f"error: {file}")) == (Exit.USAGE, True), ran.err
    assert "nested too deeply" in ran.err or "maximum nesting depth" in ran.err


def test_a_request_that_is_nested_too_deeply(on_broker: Kctl) -> None:
    ran = on_broker("raw", "Metadata", "[" * 100_000)
    assert (ran.code, ran.err) == (Exit.USAGE, "error: the request is not JSON: it is nested too deeply\n")


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        (os.fsdecode(b"client.id=a\xff"), "client.id is not UTF-8"),
        (f"client.id={'a' * 40_000}", "client.id has 40000 bytes, 32767 are the most"),
        (os.fsdecode(b"sasl.username=a\xff"), "the user's name is not UTF-8"),
    ],
)
def test_a_name_of_the_client_that_cannot_be_sent(kctl: Kctl, setting: str, told: str) -> None:
    ran = kctl("-b", "127.0.0.1:1", "topics", "list", "-X", setting)
    assert (ran.code, ran.err) == (Exit.USAGE, f"error: {told}\n")


CONFIGURED = [
    ["topics", "list", "--command-config", "{file}"],
    ["topics", "list", "-X", "security.protocol=SSL", "-X", "ssl.truststore.location={file}"],
    ["topics", "list", "-X", "security.protocol=SSL", "-X", "ssl.keystore.location={file}"],
    ["groups", "reset-offsets", "g", "--from-file", "{file}", "-y"],
]


@pytest.mark.parametrize("words", [*FILES, *CONFIGURED], ids=lambda words: " ".join(words[:2]))
@pytest.mark.timeout(20)
def test_a_file_that_never_ends(on_broker: Kctl, tmp_path: Path, words: list[str]) -> None:
    segment = tmp_path / "00000000000000000000.log"
    segment.touch()
    os.mkfifo(tmp_path / "pipe.json")
    for file in (tmp_path / "pipe.json", "/dev/zero"):
        ran = on_broker(*(word.format(file=file, segment=segment) for word in words))
        assert ran.code == Exit.USAGE
        assert ran.err.startswith(f"error: {file} is no regular file\n       a pipe can be given as <(COMMAND)")


@pytest.mark.timeout(20)
def test_a_file_of_contexts_that_never_ends(kctl: Kctl) -> None:
    os.mkfifo(os.environ["KCTL_CONFIG"], 0o600)
    ran = kctl("topics", "list")
    assert (ran.code, ran.err.splitlines()[0]) == (Exit.USAGE, f"error: {os.environ['KCTL_CONFIG']} is no regular file")


def test_a_pipe_that_a_shell_has_opened_and_nothing_are_files(broker: KafkadProcess, on_broker: Kctl) -> None:
    def handed_over(text: str) -> str:
        """As `<(…)` is; the command has not ended when it is read."""
        reader, writer = os.pipe()
        os.write(writer, text.encode())
        os.close(writer)
        return f"/dev/fd/{reader}"

    topics = handed_over("topics: [{name: of-a-pipe, partitions: 1}]")
    assert on_broker("topics", "create", "-f", topics, "-y").code == Exit.DONE
    for config in (handed_over("client.id=of-a-pipe\n"), "/dev/null"):
        assert on_broker("topics", "list", "of-a-pipe", "--command-config", config).code == Exit.DONE
    differs = on_broker("configs", "diff", "topic/of-a-pipe", "-f", handed_over("retention.ms=7\n"))
    assert differs.code == Exit.FINDINGS


def test_a_directory_in_the_place_of_a_file(on_broker: Kctl, tmp_path: Path) -> None:
    for words in (*FILES[:3], *CONFIGURED):
        ran = on_broker(*(word.format(file=tmp_path) for word in words))
        assert (ran.code, ran.err) == (Exit.FAILED, f"error: {tmp_path}: Is a directory\n"), words


def test_a_file_of_contexts_that_is_no_text(kctl: Kctl) -> None:
    file = Path(os.environ["KCTL_CONFIG"])
    file.write_bytes(b"\xff")
    file.chmod(0o600)
    ran = kctl("topics", "list")
    assert (ran.code, ran.err) == (Exit.USAGE, f"error: {file} is not a text file: byte 1 of it, 0xff, is not UTF-8\n")


@pytest.mark.parametrize("words", [["topics", "describe"], ["groups", "describe"], ["groups", "delete", "-y"]])
def test_a_name_that_is_no_text(on_broker: Kctl, words: list[str]) -> None:
    ran = on_broker(*words, os.fsdecode(b"a\xff"))
    assert (ran.code, ran.err) == (Exit.USAGE, "error: 'a\\udcff' is not UTF-8, so it cannot be a name in Kafka\n")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('{"topics": "abc"}', "Metadata.topics must be a list, not 'abc'"),
        ('{"topics": [{"name": 5}]}', "Metadata cannot be sent: 'int' object has no attribute 'encode'"),
        ('{"topics": [{"topic_id": {"base64": "?"}}]}', "Metadata.topics[0].topic_id is not base64"),
    ],
)
def test_a_request_that_cannot_be_sent(on_broker: Kctl, given: str, told: str) -> None:
    ran = on_broker("raw", "Metadata", given)
    assert (ran.code, ran.err) == (Exit.USAGE, f"error: {told}\n")


@pytest.mark.parametrize("form", ["csv", "name"])
def test_an_answer_that_is_no_table(kctl: Kctl, form: str) -> None:
    ran = kctl("-b", "127.0.0.1:1", "raw", "Metadata", "-o", form)
    told = f"error: kctl raw prints an answer as it is, in JSON, and has no -o {form}\n"
    assert (ran.code, ran.out) == (Exit.USAGE, "") and ran.err.startswith(told)


def test_a_login_where_none_is_taken(on_broker: Kctl) -> None:
    login = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=a", "sasl.password=b")
    ran = on_broker("topics", "list", *(word for setting in login for word in ("-X", setting)))
    assert ran.code == Exit.UNAUTHORIZED
    assert "the broker takes no SASL on this port" in ran.err
    assert "security.protocol is PLAINTEXT there" in ran.err


def test_one_directory_of_several_is_not_there(kctl: Kctl, tmp_path: Path) -> None:
    directory = tmp_path / "not-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").touch()
    ran = kctl("check-log", tmp_path / "nowhere", __file__, directory)
    assert ran.code == Exit.FINDINGS
    assert [line.split(": ")[-1] for line in ran.err.splitlines()[:2]] == [
        "No such file or directory",
        "Not a directory",
    ]
    assert "1 partition" in ran.err, "the others are checked"
    assert kctl("check-log", tmp_path / "nowhere").code == Exit.NOT_FOUND


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "words", [["dump-segment"], ["dump-index"], ["dump-index", "--verify"], ["check-log"]], ids=" ".join
)
def test_special_files_among_those_of_a_log(kctl: Kctl, tmp_path: Path, words: list[str]) -> None:
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.parent.mkdir()
    os.mkfifo(log)
    os.mkfifo(log.with_suffix(".index"))
    given = {"dump-segment": log, "dump-index": log.with_suffix(".index"), "check-log": log.parent}
    ran = kctl(*words, given[words[0]], "-o", "csv")
    assert "is no regular file" in f"{ran.out}{ran.err}"
    assert ran.code == (Exit.FINDINGS if words == ["check-log"] else Exit.FAILED)


@pytest.mark.timeout(20)
def test_special_files_of_a_log_directory_are_findings(kctl: Kctl, tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").touch()
    names = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "meta.properties", ".lock")
    for name in names:
        os.mkfifo(tmp_path / name)
    items = json.loads(kctl("check-log", tmp_path, "-o", "json").out)["items"]
    told = {Path(item["file"]).name for item in items if item["problem"] == "cannot be read: is no regular file"}
    assert told == {*names} - {".lock"}


def test_a_terminal_that_lacks_the_signs(broker: KafkadProcess, on_broker: Kctl, tmp_path: Path) -> None:
    on_broker("topics", "create", "signs", "-p", 1, "-y")
    assert on_broker("groups", "reset-offsets", "prüfung", "--topic", "signs", "--to", 0, "-y", "--undo-dir", tmp_path)
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "groups", "list", "prüfung", "-o", "name"]
    done = subprocess.run(command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"}, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (Exit.DONE, b"pr\\xfcfung\n", b"")


@pytest.mark.parametrize("output", ["table", "json"])
def test_standard_output_has_no_room(output: str) -> None:
    command = [sys.executable, "-m", "kctl", "version", "-o", output]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == Exit.FAILED
    assert done.stderr.startswith("error: cannot write: No space left on device\n")
    assert "defect" not in done.stderr and "Traceback" not in done.stderr


def test_standard_streams_are_closed(broker: KafkadProcess) -> None:
    """As some supervisors start what they start. The first socket must not be taken for one of them."""
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-m", "kctl", "-b", broker.bootstrap]
    assert subprocess.run([*closed, "brokers", "list"], check=False).returncode == Exit.DONE
    assert subprocess.run([*closed, "topics", "delete", "nothing"], check=False).returncode == Exit.NOT_FOUND


@pytest.mark.parametrize("option", ["--timeout", "--watch"])
def test_a_time_that_is_none_is_told_with_its_option(kctl: Kctl, option: str) -> None:
    ran = kctl("topics", "list", f"{option}=soon")
    assert (ran.code, ran.err.splitlines()[0]) == (Exit.USAGE, f'error: {option}: "soon" is not a duration')


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "truncate", "t", "--all", "--partitions", ""],
        ["topics", "delete", "t", "-b", ""],
        ["-c", "", "topics", "delete", "t"],
        ["acls", "remove", "--topic", ""],
        ["acls", "remove", "--topic", "t", "--host", ""],
        ["consume", "t", "--partitions", ""],
        ["partitions", "plan", "--rf", "1", "--topics", ""],
        ["groups", "reset-offsets", "g", "--topic", "", "--to", "latest"],
        ["quotas", "set", "user=", "producer_byte_rate=1"],
    ],
)
def test_an_empty_word_is_not_taken_for_everything(kctl: Kctl, words: list[str]) -> None:
    assert kctl(*words, "-y").code == Exit.USAGE


MANY = "9" * 5000


@pytest.mark.parametrize(
    "words",
    [
        ["consume", "t", "--from", "@0001-01-01"],
        ["consume", "t", "--to", "@9999-12-31T23:59:59"],
        ["consume", "t", "--from", "@-999999999999d"],
        ["consume", "t", "--from", "@+999999999999d"],
        ["consume", "t", "--from", "@1969-12-31T23:59:59.997Z"],
        ["consume", "t", "--from", "@²²²²²²²²²"],
        ["consume", "t", "--from", MANY],
        ["consume", "t", "--from", f"@-{MANY}d"],
        ["topics", "offsets", "--at", "9" * 25],
        ["topics", "offsets", "--partitions", MANY],
        ["topics", "create", "bad-input", "-p", "99999999999"],
        ["topics", "create", "bad-input", "-r", "99999999999"],
        ["topics", "create", "bad-input", "--replicas", "²=1"],
        ["groups", "reset-offsets", "g", "--topic", "t", "--to", "²"],
        ["groups", "reset-offsets", "g", "--topic", "t", "--to", f"+{MANY}"],
        ["groups", "reset-offsets", "g", "--topic", "t", "--by-duration", f"P{MANY}D"],
        ["configs", "describe", "broker/²"],
        ["configs", "describe", "logger/99999999999"],
        ["raw", "²", "{}"],
        ["raw", "Metadata", "{}", "--api-version", "99999999999"],
        ["topics", "list", "-b", "h:²"],
        ["topics", "list", "-b", f"h:{MANY}"],
        ["topics", "list", "--timeout", MANY],
        ["quotas", "set", "user=a", f"producer_byte_rate={MANY}"],
        ["partitions", "plan", "--rf", "99999999999"],
        ["partitions", "reassign", "t:99999999999=1"],
        ["partitions", "reassign", "t:0=99999999999"],
        ["produce", "t", "--value", "x", "--transactional-id", "x", "--transaction-timeout", "99999999999"],
        ["copy", "t", "t2", "--transactional-id", "x", "--transaction-timeout", "99999999999"],
    ],
    ids=lambda words: " ".join(words)[:60],
)
def test_numbers_and_times_that_cannot_be(on_broker: Kctl, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    on_broker("topics", "create", "t", "-p", 1, "-y")
    ran = on_broker(*words, "-y")
    monkeypatch.undo()
    time.tzset()
    assert ran.code == Exit.USAGE, ran.err
    assert "bug in kctl" not in ran.err and "cannot be sent" not in ran.err


def test_a_setting_of_more_digits_than_python_reads(on_broker: Kctl) -> None:
    on_broker("topics", "create", "t", "-p", 1, "-y")
    ran = on_broker("configs", "set", "topic/t", f"retention.ms={MANY}", "-y")
    assert ran.code != Exit.DONE and "bug in kctl" not in ran.err, ran.err


def test_offsets_that_are_no_numbers(on_broker: Kctl, tmp_path: Path) -> None:
    on_broker("topics", "create", "t", "-p", 1, "-y")
    assert on_broker("topics", "truncate", "t", "--before", "²", "-y").code == Exit.USAGE
    offsets = tmp_path / "offsets.json"
    offsets.write_text('{"partitions": [{"topic": "t", "partition": 0, "offset": 1e999}]}')
    assert on_broker("topics", "truncate", "--offset-json-file", offsets, "-y").code == Exit.USAGE
    for name, text in (("o.json", '[{"topic": "t", "partition": 0, "offset": 1e999}]'), ("o.csv", f"t,0,{MANY}\n")):
        (tmp_path / name).write_text(text)
        assert on_broker("groups", "reset-offsets", "g", "--from-file", tmp_path / name, "-y").code == Exit.USAGE


@pytest.mark.timeout(20)
def test_a_journal_of_metadata_that_never_ends(kctl: Kctl, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ran = kctl("cluster", "zk", "ls", "/", "--data", tmp_path / "pipe")
    assert (ran.code, "is not a kafkad metadata journal" in ran.err) == (Exit.FINDINGS, True)
