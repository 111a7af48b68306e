from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from kctl.configs.change import plan, set_configs, to_send, undo_command
from kctl.configs.naming import resources_and_settings
from kctl.configs.resources import Entry, Resource, altered, parse_resource
from kctl.configs.values import APPEND, DELETE, SET, SUBTRACT, Assignment, parse_assignments
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.settings import Settings
from tests.kctl.conftest import Kctl, steady


def created(kctl: Kctl, name: str) -> str:
    assert kctl("topics", "create", name, "-p", 1, "-r", 1, "-y").code == Exit.DONE
    return f"topic/{name}"


def value(kctl: Kctl, resource: str, name: str) -> tuple[str, str]:
    (row,) = json.loads(kctl("configs", "describe", resource, "--name", name, "-o", "json").out)["items"]
    return row["value"], row["source"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topic/a", Resource("topic", "a")),
        ("topics/a", Resource("topic", "a")),
        ("broker/1", Resource("broker", "1")),
        ("brokers", Resource("broker", "")),
        ("users", Resource("user", "")),
        ("client/a/b", Resource("client", "a/b")),
        ("client-metrics/m", Resource("client-metrics", "m")),
    ],
)
def test_resources(text: str, expected: Resource) -> None:
    assert parse_resource(text) == expected
    assert parse_resource(str(expected)) == expected


@pytest.mark.parametrize("text", ["orders", "topic/", "topic", "topics", "broker/a", "tpoic/a", ""])
def test_what_is_no_resource(text: str) -> None:
    with pytest.raises(KctlError) as caught:
        parse_resource(text)
    assert caught.value.exit_code == Exit.USAGE


def test_whatever_was_set_is_one_word_of_what_brings_it_back() -> None:
    group, match = Resource("group", "x'; id; '"), "client_id=Pat O'Brien"
    before = {group: [Entry("match", match, "group", False, False, False)]}
    changes = parse_assignments(["match=m", "new=1"])
    back, gone = undo_command(Settings(), before, changes).split("; kctl ")
    assert shlex.split(back) == ["kctl", "configs", "set", str(group), f"match={match}"]
    assert shlex.split(gone) == ["configs", "unset", str(group), "new"]


def test_set_shows_both_values_and_reads_back(on_broker: Kctl, approved: Callable[[str, str], None]) -> None:
    topic = created(on_broker, "set-a")
    ran = on_broker("configs", "set", topic, "retention.ms=1d", "cleanup.policy+=compact", "-y")
    assert ran.code == Exit.DONE
    approved("configs-set", steady(ran.out + ran.err))
    assert value(on_broker, topic, "retention.ms") == ("86400000", "topic")
    assert value(on_broker, topic, "cleanup.policy") == ("delete,compact", "topic")


def test_set_changes_nothing_else(on_broker: Kctl) -> None:
    topic = created(on_broker, "set-b")
    on_broker("configs", "set", topic, "segment.bytes=1MiB", "-y")
    on_broker("configs", "set", topic, "retention.ms=2d", "-y")
    assert value(on_broker, topic, "segment.bytes") == ("1048576", "topic")


def test_unset(on_broker: Kctl) -> None:
    topic = created(on_broker, "unset-a")
    on_broker("configs", "set", topic, "retention.ms=1d", "-y")
    ran = on_broker("configs", "unset", topic, "retention.ms", "-y")
    assert (ran.code, " configs set topic/unset-a retention.ms=86400000" in ran.err) == (Exit.DONE, True)
    assert value(on_broker, topic, "retention.ms") == ("604800000", "default")


@pytest.mark.parametrize("command", [["configs", "unset", "topic/{}"], ["topics", "alter", "{}", "--unset"]])
def test_to_fall_back_to_the_hours_of_brokers_deletes(on_broker: Kctl, command: list[str]) -> None:
    """They are not named beside a topic's own value."""
    name = f"fall-back-{command[0]}"
    topic = created(on_broker, name)
    on_broker("configs", "set", topic, "retention.ms=-1", "-y")
    words = [word.format(name) for word in command]
    (row,) = json.loads(on_broker(*words, "retention.ms", "--dry-run", "-o", "json").out)["items"]
    assert (row["new"].split()[0], row["effect"]) == ("604800000", "deletes data older than 7d now")
    assert "verified: read back" in on_broker(*words, "retention.ms", "-y").err


def test_what_counts_for_nothing_is_shown_as_it_is_stored_and_not_brought_back() -> None:
    """The broker describes the value that counts, and what is stored as the first synonym."""
    synonyms = (("topic", "retention.ms", "abc"), ("default", "log.retention.ms", "7000"))
    resource, entry = Resource("topic", "t"), Entry("retention.ms", "7000", "topic", False, False, False, synonyms)
    changes = [Assignment(entry.name, DELETE, None)]
    (row,) = plan(resource, [entry], changes)
    assert (row["current"], row["new"], row["changes"]) == ("abc", "7000", True)
    assert undo_command(Settings(), {resource: [entry]}, changes) == ""


def test_a_logger_that_there_is_not_is_called_one() -> None:
    entry = Entry("kafkad.group.stored", "INFO", "logger", False, False, False)
    with pytest.raises(KctlError) as caught:
        plan(Resource("logger", "1"), [entry], [Assignment("kafkad.group.store", SET, "DEBUG")])
    assert caught.value.what == 'there is no logger "kafkad.group.store"'
    assert caught.value.hints == (
        'did you mean "kafkad.group.stored"?',
        "kctl configs describe logger/1 --all shows what there is",
    )


def test_an_empty_value_can_be_seen() -> None:
    entry = Entry("cleanup.policy", "delete", "default", True, False, False)
    (row,) = plan(Resource("topic", "t"), [entry], parse_assignments(["cleanup.policy-=delete"]))
    assert (row["current_shown"], row["new_shown"], row["new"]) == ("delete", '""', "")


def test_a_hidden_setting_that_is_unset_gets_no_new_value() -> None:
    entry = Entry("foo.bar", None, "topic", False, False, True, (("topic", "foo.bar", None),))
    (row,) = plan(Resource("topic", "t"), [entry], [Assignment(entry.name, DELETE, None)])
    assert (row["current"], row["new"], row["new_shown"]) == ("(hidden)", None, "default")


def test_to_fall_back_to_what_is_not_known_may_delete() -> None:
    entry = Entry("retention.ms", "-1", "topic", False, False, False, (("topic", "retention.ms", "-1"),))
    (row,) = plan(Resource("topic", "t"), [entry], [Assignment(entry.name, DELETE, None)])
    assert (row["new"], row["effect"]) == (None, "may delete data: the default is not known")


def test_to_fall_back_to_what_is_counted_in_hours() -> None:
    synonyms = (("broker", "log.retention.ms", "-1"), ("file", "log.retention.hours", "168"))
    entry = Entry("log.retention.ms", "-1", "broker", False, False, False, synonyms)
    (row,) = plan(Resource("broker", "1"), [entry], [Assignment(entry.name, DELETE, None)])
    assert (row["new"], row["new_shown"]) == ("604800000", "604800000 (7d)")
    assert row["effect"] == "topics without a value of their own: deletes data older than 7d now"


def test_a_retention_that_is_in_force_in_hours_already_deletes_nothing() -> None:
    unset = Entry("log.retention.ms", None, "default", True, False, False)
    entries = [unset, Entry("log.retention.hours", "168", "default", True, True, False)]
    for value, effect in (("7d", None), ("6d", "topics without a value of their own: deletes data older than 6d now")):
        (row,) = plan(Resource("broker", "1"), entries, parse_assignments([f"log.retention.ms={value}"]))
        assert (row["changes"], row["effect"]) == (True, effect)


def test_nothing_falls_back_that_is_not_set_there() -> None:
    synonyms = (("broker", "log.retention.ms", "1000"), ("file", "log.retention.ms", "2000"))
    entry = Entry("retention.ms", "1000", "broker", False, False, False, synonyms)
    (row,) = plan(Resource("topic", "t"), [entry], [Assignment(entry.name, DELETE, None)])
    assert (row["new"], row["changes"], row["effect"]) == ("1000", False, None)


@pytest.mark.parametrize("resource", ["brokers", "broker/{}"])
def test_what_all_topics_follow_is_warned_of_too(on_broker: Kctl, resource: str) -> None:
    (broker,) = [item["id"] for item in json.loads(on_broker("brokers", "list", "-o", "json").out)["items"]]
    words = "configs", "set", resource.format(broker), "log.retention.ms=1m", "--dry-run", "-o", "json"
    (row,) = json.loads(on_broker(*words).out)["items"]
    assert row["effect"] == "topics without a value of their own: deletes data older than 1m now"


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("topic", "l+=b", Assignment("l", APPEND, "b")),
        ("topic", "l-=a", Assignment("l", SUBTRACT, "a")),
        ("file", "l+=b", Assignment("l", SET, "a,b")),
        ("default", "l-=a", Assignment("l", SET, "")),
        ("default", "l+=[b,c]", Assignment("l", SET, "a,b,c")),
        ("topic", "l=[b]", Assignment("l", SET, "b")),
        ("topic", "listener.name.x.l=[b]", Assignment("listener.name.x.l", SET, "b")),
        ("topic", "text=[b]", Assignment("text", SET, "[b]")),
        ("topic", "unknown=[b]", Assignment("unknown", SET, "b")),
        ("topic", "some.password=[b]", Assignment("some.password", SET, "[b]")),
    ],
)
def test_what_brokers_are_told(source: str, text: str, expected: Assignment) -> None:
    """They add to a list that is the topic's own, and to Kafka's default where it is not: not to what is in force."""
    known = [
        Entry("l", "a", source, source == "default", False, False, is_list=True),
        Entry("text", "a", source, False, False, False),
    ]
    assert to_send(Resource("topic", "t"), known, parse_assignments([text])) == [expected]


@pytest.mark.parametrize("name", ["log.cleanup.policy", "listener.name.x.ssl.enabled.protocols"])
def test_nothing_is_added_to_what_is_not_known(on_broker: Kctl, name: str) -> None:
    """All brokers, and listeners, are described only where they have something of their own."""
    ran = on_broker("configs", "set", "brokers", f"{name}+=compact", "-y")
    assert (ran.code, f"say all of it: {name}=" in ran.err) == (Exit.USAGE, True)


@pytest.mark.parametrize("command", [["configs", "set", "topic/{}"], ["topics", "alter", "{}", "--config"]])
def test_what_is_added_to_a_list_of_the_brokers_is_what_the_plan_says(on_broker: Kctl, command: list[str]) -> None:
    topic = created(on_broker, f"set-inherited-{command[0]}")
    (broker,) = [item["id"] for item in json.loads(on_broker("brokers", "list", "-o", "json").out)["items"]]
    setting = f"broker/{broker}", "log.cleanup.policy"
    assert on_broker("configs", "set", setting[0], f"{setting[1]}=compact", "-y").code == Exit.DONE
    try:
        words = [word.format(topic.removeprefix("topic/")) for word in command]
        ran = on_broker(*words, "cleanup.policy+=delete", "-y")
        assert (ran.code, "compact,delete" in ran.out, "verified" in ran.err) == (Exit.DONE, True, True)
        assert value(on_broker, topic, "cleanup.policy") == ("compact,delete", "topic")
    finally:
        on_broker("configs", "unset", *setting, "-y")


def test_a_value_that_reads_back_as_another_is_an_error(on_broker: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = created(on_broker, "set-differs")
    sent = altered

    def other(session: Session, changes: dict[Resource, list[Assignment]], *, validate_only: bool) -> object:
        """What was not asked for."""
        wrong = {resource: [one._replace(value="7") for one in asked] for resource, asked in changes.items()}
        return sent(session, wrong, validate_only=validate_only)

    monkeypatch.setattr("kctl.configs.change.altered", other)
    ran = on_broker("configs", "set", topic, "retention.ms=1d", "-y", "--timeout", "1s")
    assert (ran.code, "topic/set-differs: retention.ms is 7 now, not 86400000" in ran.err) == (Exit.FAILED, True)
    assert "verified" not in ran.err


def test_a_change_that_no_broker_shows_yet_is_not_verified(on_broker: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = created(on_broker, "set-late")
    monkeypatch.setattr("kctl.configs.change.altered", lambda *_, **__: {})
    ran = on_broker("configs", "set", topic, "retention.ms=1d", "-y", "--timeout", "1s")
    assert (ran.code, "not verified" in ran.err) == (Exit.DONE, True)


def test_set_what_is_so(on_broker: Kctl) -> None:
    topic = created(on_broker, "set-same")
    assert "nothing to do" in on_broker("configs", "unset", topic, "retention.ms", "-y").err
    on_broker("configs", "set", topic, "retention.ms=1d", "-y")
    assert "nothing to do" in on_broker("configs", "set", topic, "retention.ms=24h", "-y").err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["topic/set-no", "retention.ms=1d"], Exit.NOT_FOUND, 'topic "set-no" does not exist'),
        (["topic/set-errors", "retention.msss=1d"], Exit.USAGE, 'did you mean "retention.ms"'),
        (["topic/set-errors", "utter.nonsense=1"], Exit.FAILED, "INVALID_CONFIG"),
        (["topic/set-errors", "min.insync.replicas=-3"], Exit.FAILED, "INVALID_CONFIG"),
        (["topic/set-errors"], Exit.USAGE, "name at least one resource and one setting"),
        (["user/alice", "consumer_byte_rate=1"], Exit.USAGE, "quotas set changes the quotas"),
        (["broker/9", "log.cleaner.threads=1"], Exit.NOT_FOUND, "broker 9 does not exist"),
    ],
)
def test_set_refuses(on_broker: Kctl, words: list[str], code: Exit, told: str) -> None:
    if not on_broker("topics", "list", "set-errors", "-q").out.count("set-errors"):
        created(on_broker, "set-errors")
    ran = on_broker("configs", "set", *words, "-y")
    assert (ran.code, told in ran.err) == (code, True), ran.err


def test_describe_has_only_what_is_set(on_broker: Kctl) -> None:
    topic = created(on_broker, "configs-described")
    assert "are defaults: --all" in on_broker("configs", "describe", topic).out
    on_broker("configs", "set", topic, "retention.ms=7d", "-y")
    ran = on_broker("configs", "describe", topic)
    assert "retention.ms  604800000 (7d)  topic" in ran.out
    everything = on_broker("configs", "describe", topic, "--all", "-o", "json")
    assert len(json.loads(everything.out)["items"]) > 30


def test_describe_a_broker_and_an_unknown_topic(on_broker: Kctl) -> None:
    ran = on_broker("configs", "describe", "broker/1", "topic/configs-unknown", "-o", "json")
    assert ran.code == Exit.NOT_FOUND
    found = {row["name"]: row["source"] for row in json.loads(ran.out)["items"]}
    assert found["auto.create.topics.enable"] in ("file", "broker")


def test_diff_of_two_topics_and_of_a_file(on_broker: Kctl, tmp_path: Path) -> None:
    left, right = created(on_broker, "diff-a"), created(on_broker, "diff-b")
    same = on_broker("configs", "diff", left, right)
    assert (same.code, same.err) == (Exit.DONE, "no difference\n")
    on_broker("configs", "set", right, "retention.ms=1d", "-y")
    ran = on_broker("configs", "diff", left, right)
    assert ran.code == Exit.FINDINGS
    assert ran.out.splitlines()[1].split() == ["retention.ms", "604800000", "(7d)", "86400000", "(1d)"]
    file = tmp_path / "settings"
    file.write_text("# ours\nretention.ms=24h\n")
    assert on_broker("configs", "diff", right, "-f", file).code == Exit.DONE
    assert on_broker("configs", "diff", left, "-f", file).code == Exit.FINDINGS
    file.write_text("retention.ms: 1d\ncleanup.policy: [delete]\npreallocate: false\n")
    assert on_broker("configs", "diff", right, "-f", file).code == Exit.DONE


def test_diff_with_a_file_shows_no_secret_of_it(on_broker: Kctl, tmp_path: Path) -> None:
    (broker,) = [item["id"] for item in json.loads(on_broker("brokers", "list", "-o", "json").out)["items"]]
    secrets = ["listener.name.x.plain.sasl.jaas.config", "listener.name.x.ssl.key.password", "ssl.keystore.password"]
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}=hunter2\n" for name in secrets) + "log.retention.ms=1\n")
    for output in ("wide", "json"):
        ran = on_broker("configs", "diff", f"broker/{broker}", "-f", file, "-o", output)
        assert ("log.retention.ms" in ran.out, "hunter2" in ran.out + ran.err) == (True, False)
        assert f"not compared, for they may be secret: {', '.join(secrets)}" in ran.err
    file.write_text(file.read_text() + "kafkad.http.token=hunter2\ndelegation.token.master.key=hunter2\n")
    ran = on_broker("configs", "diff", created(on_broker, "diff-secrets"), "-f", file)
    assert ("log.retention.ms" in ran.out, "hunter2" in ran.out + ran.err) == (True, False)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["topic/a"], "name two resources"),
        (["topic/a", "topic/b", "-f", "x"], "name two resources"),
        (["topic/a", "topic"], "names no topic"),
    ],
)
def test_diff_of_what_cannot_be_compared(on_broker: Kctl, arguments: list[str], told: str) -> None:
    ran = on_broker("configs", "diff", *arguments)
    assert (ran.code, told in ran.err) == (Exit.USAGE, True)


def test_diff_with_a_file_in_which_nothing_is_said_of_a_setting(on_broker: Kctl, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("retention.ms: null\nsegment.bytes:\n")
    ran = on_broker("configs", "diff", created(on_broker, "diff-null"), "-f", file)
    assert (ran.code, ran.err) == (Exit.DONE, "no difference\n")


def test_diff_with_a_file_that_gives_a_setting_no_value(on_broker: Kctl, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("cleanup.policy: [delete, {compact: yes}]\n")
    ran = on_broker("configs", "diff", created(on_broker, "diff-values"), "-f", file)
    assert (ran.code, ran.err) == (
        Exit.USAGE,
        f"error: {file}: cleanup.policy must be a value or a list of values\n",
    )


@pytest.mark.parametrize("text", ["a:\n  b: 1\n", "- a\n", "a: [\n", "a: &a [*a]\n", "null\n"])
def test_files_that_are_no_settings(on_broker: Kctl, tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings"
    file.write_text(text)
    assert on_broker("configs", "diff", "broker/1", "-f", file).code == Exit.USAGE


def test_completes_kinds_names_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"topics": ["orders"], "brokers": ["1", "12"], "groups": [], "topic-configs": ["retention.ms"]}
    monkeypatch.setattr("kctl.command.cluster_names._names", lambda _, kind: known[kind])
    command = set_configs
    context = click.Context(command)
    parameter = command.params[0]
    assert resources_and_settings(context, parameter, "to") == ["topic/"]
    assert resources_and_settings(context, parameter, "topic/o") == ["topic/orders"]
    assert resources_and_settings(context, parameter, "broker/1") == ["broker/1", "broker/12"]
    assert resources_and_settings(context, parameter, "user/a") == []
    context.params["words"] = ("topic/orders",)
    assert resources_and_settings(context, parameter, "ret") == ["retention.ms"]


@pytest.mark.parametrize(
    ("name", "current"),
    [("ssl.keystore.password", "(hidden)"), ("listener.name.external.ssl.keystore.password", None)],
)
def test_a_password_is_not_shown_before_it_is_set_either(name: str, current: str | None) -> None:
    entries = [Entry("ssl.keystore.password", None, "default", True, False, sensitive=True)]
    (row,) = plan(parse_resource("broker/1"), entries, parse_assignments([f"{name}=s3cr3t"]))
    assert "s3cr3t" not in str(row)
    assert (row["current"], row["changes"]) == (current, True)


def test_a_setting_of_a_listener_that_is_unset_reads_back(on_broker: Kctl) -> None:
    """It is not described any more then; what it falls back to is that without the listener."""
    name = "listener.name.plaintext.max.connections"
    (broker,) = [item["id"] for item in json.loads(on_broker("brokers", "list", "-o", "json").out)["items"]]
    assert "verified" in on_broker("configs", "set", f"broker/{broker}", f"{name}=1000", "-y").err
    ran = on_broker("configs", "unset", f"broker/{broker}", name, "-y")
    assert (ran.code, "verified: read back" in ran.err) == (Exit.DONE, True), ran.err


def test_what_falls_back_to_hours_reads_back(on_broker: Kctl) -> None:
    """The setting in milliseconds has no value then."""
    (broker,) = [item["id"] for item in json.loads(on_broker("brokers", "list", "-o", "json").out)["items"]]
    on_broker("configs", "set", f"broker/{broker}", "log.retention.ms=8d", "-y")
    ran = on_broker("configs", "unset", f"broker/{broker}", "log.retention.ms", "-y", "--timeout", "1s")
    assert "604800000 (7d)" in ran.out
    assert (ran.code, "\nverified: read back" in f"\n{ran.err}") == (Exit.DONE, True), ran.err
