"""From files, overrides and the environment to a Config, and every way in which that can fail."""

import os
from pathlib import Path

import pytest

from kafkad.config import BROKER_SETTINGS, LONG_MAX, Config, ConfigError, LogConfig, Source, ZooKeeperAddress, load
from kafkad.config.checks import contradictions
from kafkad.config.files import read_properties
from kafkad.config.setting import JAVA
from kafkad.names import METADATA_FILE

AUTHORIZER = "authorizer.class.name: kafka.security.authorizer.AclAuthorizer"
SERVER_PROPERTIES = """\
# what Kafka 3.9 ships for ZooKeeper mode
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/var/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
#log.retention.bytes=1073741824
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


def write(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def problems(config_file: str | None, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(config_file, overrides, {})
    return list(caught.value.problems)


def test_without_a_file_it_is_one_node_on_loopback() -> None:
    config = load(None, [], {})
    assert config.str("listeners") == "PLAINTEXT://127.0.0.1:9092"
    assert config.log_dirs == ("kafkad-data",)
    assert config.broker_id == -1
    assert config.int("log.segment.bytes") == 1 << 30
    assert config.warnings == ()


def test_systemds_state_directory_is_the_default_for_data() -> None:
    environ = {"STATE_DIRECTORY": "/var/lib/kafkad:/var/lib/other"}
    assert load(None, [], environ).log_dirs == ("/var/lib/kafkad",)
    assert load(None, ["log.dirs=/a, /b,/a"], environ).log_dirs == ("/a", "/b")


def test_metadata_lives_in_the_first_data_directory_unless_said_otherwise() -> None:
    assert load(None, ["log.dirs=/a,/b"], {}).metadata_dir == "/a"
    assert load(None, ["log.dirs=/a,/b", "kafkad.metadata.dir=/m"], {}).metadata_dir == "/m"


def test_yaml_behind_the_mark_that_some_editors_write_is_yaml(tmp_path: Path) -> None:
    """Also where the name of the file does not say so, and a comment in the first line looks like a property."""
    path = write(tmp_path, "kafkad.conf", "\ufeff# broker.id=2\nlog.dirs: /a\nbroker.id: 7\n")
    config = load(path, [], {})
    assert (config.broker_id, config.str("listeners")) == (7, "PLAINTEXT://127.0.0.1:9092")


def test_yaml_dotted_nested_and_mixed(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "kafkad.yaml",
        """
log.segment.bytes: 1_048_576
log:
  retention: {ms: -1}
  dirs: [/a, /b]
  cleanup.policy: [delete, compact]
auto.create.topics.enable: off
broker.rack:
log.cleaner.min.cleanable.ratio: 0.25
""",
    )
    config = load(path, [], {})
    assert config.int("log.segment.bytes") == 1_048_576
    assert config.long("log.retention.ms") == -1
    assert config.log_dirs == ("/a", "/b")
    assert config.list("log.cleanup.policy") == ("delete", "compact")
    assert config.bool("auto.create.topics.enable") is False
    assert config.value("broker.rack") is None
    assert config.double("log.cleaner.min.cleanable.ratio") == 0.25
    assert config.file == path


@pytest.mark.parametrize("text", ["Yes", "no", "12_34", "0x1F", "1_0.5", "ON"])
def test_a_text_is_what_stands_in_yaml(tmp_path: Path, text: str) -> None:
    names = ("kafkad.http.token", "broker.rack", "ssl.keystore.password", "listener.name.plaintext.ssl.key.password")
    lines = [f"{name}: {text}\n" for name in names]
    config = load(write(tmp_path, "kafkad.yaml", "".join([*lines, f"metric.reporters: [a, {text}]\n"])), [], {})
    assert [config.at(Source.STATIC_BROKER_CONFIG, name) for name in names] == [text] * 4
    assert config.list("metric.reporters") == ("a", text)


def test_an_empty_file_is_no_file(tmp_path: Path) -> None:
    assert load(write(tmp_path, "kafkad.yaml", "# nothing\n"), [], {}).int("num.partitions") == 1


def test_overrides_win_and_can_unset(tmp_path: Path) -> None:
    path = write(tmp_path, "kafkad.yaml", "num.partitions: 3\nbroker.rack: r1\nssl.keystore.location: /k\n")
    config = load(path, ["num.partitions=5", "broker.rack=", "ssl.keystore.location="], {})
    assert config.int("num.partitions") == 5
    assert config.value("broker.rack") is None


def test_kafkas_own_server_properties_is_accepted_as_it_is(tmp_path: Path) -> None:
    config = load(write(tmp_path, "server.properties", SERVER_PROPERTIES), [], {"STATE_DIRECTORY": "/state"})
    assert config.broker_id == 0
    assert config.log_dirs == ("/var/kafka-logs",)
    assert config.str("listeners") == "PLAINTEXT://:9092"
    assert config.zookeeper == ZooKeeperAddress("localhost:2181", "")
    assert config.zookeeper_connection_timeout_ms == 18_000
    assert config.warnings == ()


def test_a_server_properties_is_for_a_broker_alone_when_zookeeper_is_unset(tmp_path: Path) -> None:
    path = write(tmp_path, "server.properties", SERVER_PROPERTIES)
    assert load(path, ["zookeeper.connect="], {}).zookeeper is None


@pytest.mark.parametrize(
    ("text", "servers", "root"),
    [
        ("zk1:2181,zk2:2181/kafka/a", "zk1:2181,zk2:2181", "/kafka/a"),
        ("zk1, 10.0.0.1:2182 ,[::1]:2183", "zk1,10.0.0.1:2182,[::1]:2183", ""),
        ("zk:2181/", "zk:2181", ""),
        ("zk:2181/kafka/", "zk:2181", "/kafka"),
    ],
)
def test_the_address_of_zookeeper(text: str, servers: str, root: str) -> None:
    assert load(None, [f"zookeeper.connect={text}"], {}).zookeeper == ZooKeeperAddress(servers, root)


def test_waiting_for_zookeeper_takes_as_long_as_a_session_unless_it_is_set() -> None:
    session = ["zookeeper.session.timeout.ms=6000"]
    assert load(None, session, {}).zookeeper_connection_timeout_ms == 6_000
    assert load(None, [*session, "zookeeper.connection.timeout.ms=0"], {}).zookeeper_connection_timeout_ms == 0


def test_what_a_server_properties_leaves_out_is_as_in_kafka(tmp_path: Path) -> None:
    path = write(tmp_path, "server.properties", "broker.id=1\n")
    assert load(path, [], {}).log_dirs == ("/tmp/kafka-logs",)
    assert load(path, [], {}).int("socket.receive.buffer.bytes") == 102_400
    assert load(path, [], {}).int("socket.send.buffer.bytes") == 102_400
    assert load(path, ["log.dirs=/x"], {}).log_dirs == ("/x",)


def test_unknown_names_are_warned_about_in_properties_and_refused_elsewhere(tmp_path: Path) -> None:
    path = write(tmp_path, "server.properties", "confluent.support=true\n")
    assert load(path, [], {}).warnings == (f"{path}:1: confluent.support is unknown and ignored",)
    yaml = write(tmp_path, "kafkad.yaml", "\nlog:\n  segment:\n    byte: 1\n")
    assert problems(yaml) == [f"{yaml}:4: log.segment.byte is not a setting; did you mean log.segment.bytes?"]
    assert problems(None, "qqq=1") == ["--set qqq: qqq is not a setting"]
    assert problems(None, "num.partitions") == ["--set num.partitions: expected NAME=VALUE"]


def test_either_name_of_the_id_sets_both(tmp_path: Path) -> None:
    path = write(tmp_path, "kafkad.yaml", "node.id: 3\n")
    assert load(path, [], {}).broker_id == 3
    assert load(path, ["broker.id=4"], {}).int("node.id") == 4


def test_all_problems_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "kafkad.yaml", "log.segment.bytes: many\nnum.partitions: 0\nssl.provider: mine\n")
    assert problems(path) == [
        f"{path}:1: Invalid value many for configuration log.segment.bytes: Not a number of type INT",
        f"{path}:2: Invalid value 0 for configuration num.partitions: Value must be at least 1",
        f"{path}:3: ssl.provider cannot be set: {JAVA}",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("zookeeper.connect: zk:port", "zookeeper.connect=zk:port: 'zk:port' is not a server; expected host:port"),
        ("zookeeper.connect: 'zk:2181,'", "'' is not a server"),
        ("zookeeper.connect: zk:99999", "'zk:99999' is not a server"),
        ("zookeeper.connect: zk:1/a//b", "'/a//b' is not a path of ZooKeeper"),
        ("zookeeper.ssl.crl.enable: true", "zookeeper.ssl.crl.enable cannot be set: kafkad looks up no revocations"),
        ("process.roles: broker", "kafkad.yaml:1: process.roles cannot be set: it belongs to KRaft"),
        ("authorizer.class.name: a.B", "a.B for configuration authorizer.class.name: kafkad runs no Java"),
        ("super.users: User:a", "super.users means nothing without an authorizer"),
        (f"{AUTHORIZER}\nsuper.users: User:a; b", "super.users: 'b' is no principal; expected TYPE:NAME"),
        (f"{AUTHORIZER}\nsuper.users: User:CN=a,O=b, User:c", "is one user, for names have commas; write ; between"),
        ("allow.everyone.if.no.acl.found: perhaps", "Invalid value perhaps for configuration allow.everyone.if.no.acl"),
        ("remote.log.storage.system.enable: true", "cannot be set: kafkad has no tiered storage"),
        ("num.partitions: 1\nnum: {partitions: 2}", "kafkad.yaml:2: num.partitions is already set at"),
        ("a: [b", "kafkad.yaml:2: this is not YAML"),
        ("- a", "kafkad.yaml:1: expected settings as `name: value`"),
        ("log.dirs: [{a: b}]", "log.dirs takes a value or a list of values"),
        ("broker.id: 1\nnode.id: 2", "kafkad.yaml:2: broker.id and node.id differ"),
        ("log.retention.ms: 0", "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        ("log.retention.hours: 0", "log.retention.hours must be unlimited (-1) or, greater than or equal to 1"),
        ("broker.id: 1001", "broker.id=1001 must not be greater than reserved.broker.max.id"),
        ("queued.max.request.bytes: 5", "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"),
        ("inter.broker.protocol.version: 3.9-IV9", "Version 3.9-IV9 is not a valid version"),
        ("log.roll.ms: 0", "log.roll.ms must be greater than or equal to 1"),
        ("log.roll.jitter.ms: -1", "log.roll.jitter.ms must be greater than or equal to 0"),
        ("replica.socket.timeout.ms: 499", "replica.socket.timeout.ms should always be at least replica.fetch.wait."),
        ("replica.lag.time.max.ms: 499", "should always be less than or equal to replica.lag.time.max.ms to prevent"),
        ("connections.max.idle.ms: 100", "delay.ms=100 should always be less than connections.max.idle.ms=100 to"),
        ("socket.send.buffer.bytes: -2", "must be at least -1"),
        ("max.connections.per.ip: 0", "max.connections.per.ip can be set to zero only"),
        ("max.connections.per.ip.overrides: localhost", "'localhost' is not host:count"),
        ("max.connections.per.ip.overrides: a..b:5", "'a..b' cannot be the name of a host"),
        ("max.connections.per.ip.overrides: .example:3", "'.example' cannot be the name of a host"),
        (f"max.connections.per.ip.overrides: {'x' * 64}:3", "cannot be the name of a host"),
        ("log.dirs: ' , '", "log.dirs names no directory"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (found,) = problems(write(tmp_path, "kafkad.yaml", text))
    assert problem in found


def test_a_directory_with_two_names_is_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    one.mkdir()
    other.symlink_to(one)
    (found,) = problems(write(tmp_path, "kafkad.yaml", f"log.dirs: {one},{other},{one}"))
    assert found == f"log.dirs names one directory twice: {one} and {other}"


def test_what_is_at_the_limit_of_another_setting_is_taken() -> None:
    for settings in (
        ["replica.fetch.wait.max.ms=900", "replica.socket.timeout.ms=900", "replica.lag.time.max.ms=900"],
        ["log.retention.hours=0", "log.retention.minutes=0", "log.retention.ms=5"],
        ["log.retention.hours=0", "log.retention.minutes=5"],
        ["broker.id=1000"],
        ["broker.id=1001", "reserved.broker.max.id=1001"],
        ["broker.id=1001", "broker.id.generation.enable=false"],
        ["queued.max.request.bytes=2000", "socket.request.max.bytes=2000"],
        ["queued.max.request.bytes=0"],
        ["connections.max.idle.ms=101"],
        ["connections.max.idle.ms=-1", "connection.failed.authentication.delay.ms=9000"],
    ):
        load(None, settings, {})


def test_a_default_of_something_refused_is_harmless(tmp_path: Path) -> None:
    path = write(tmp_path, "kafkad.yaml", "ssl.client.auth: none\nremote.log.storage.system.enable: false\n")
    assert load(path, [], {}).warnings == ()


def test_settings_without_effect_are_named(tmp_path: Path) -> None:
    config = load(write(tmp_path, "kafkad.yaml", "num.io.threads: 9\nnum.network.threads: 4\n"), [], {})
    (warning,) = config.warnings
    assert warning.startswith("no effect: num.io.threads, num.network.threads: kafkad has one event loop")


def test_unreadable_files(tmp_path: Path) -> None:
    assert problems(str(tmp_path / "none.yaml")) == [f"{tmp_path}/none.yaml: cannot be read: No such file or directory"]
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe")
    assert problems(str(binary)) == [f"{binary}: is not a text file in UTF-8"]
    empty = tmp_path / "empty.yaml"
    empty.write_text(" \n")
    assert problems(str(empty)) == [f"{empty}: is empty; to run by the defaults, leave --config away"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("how", [{"among_others": True}, {"again": True}], ids=str)
def test_a_pipe_that_may_have_been_read_is_not_waited_for(tmp_path: Path, how: dict[str, bool]) -> None:
    pipe = tmp_path / "kafkad.yaml"
    os.mkfifo(pipe)
    with pytest.raises(
        ConfigError, match=f"^{pipe} is no regular file, and cannot be read again; to change what it said, restart$"
    ):
        load(str(pipe), [], {}, **how)


def test_properties_may_be_in_javas_own_encoding(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes("# caf\u00e9\nbroker.rack=\u00e9tage\n".encode("latin-1"))
    config = load(str(file), [], {})
    assert (config.value("broker.rack"), config.warnings) == ("\u00e9tage", ())


def test_a_log_directory_may_end_with_a_blank_that_javas_trim_leaves(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes("log.dirs=/donn\u00e0, /b\n".encode())
    assert load(str(file), [], {}).log_dirs == ("/donn\u00c3\u00a0", "/b")


def test_letters_in_utf_8_are_read_in_properties_as_java_does_and_named(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes("num.partitions=3\nbroker.rack=\u00e9tage\nssl.key.password=p\\u00e9\n".encode())
    config = load(str(file), [], {})
    assert config.value("broker.rack") == "\u00c3\u00a9tage"
    named = [warning for warning in config.warnings if "UTF-8" in warning]
    assert [warning.partition(" is written")[0] for warning in named] == [f"{file}:2: broker.rack"]


@pytest.mark.parametrize("text", ["a: &a\n  b: *a", "a: b\nlog.dirs: &a [x, [*a]]"])
def test_what_is_a_part_of_itself_in_yaml_is_refused(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "kafkad.yaml", text)
    assert problems(path) == [f"{path}:2: what is named with & and used again here has itself as a part"]


def test_what_is_named_over_and_over_in_yaml_is_refused(tmp_path: Path) -> None:
    more = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30))
    path = write(tmp_path, "kafkad.yaml", f"a0: &a0 [x, y]\n{more}")
    (problem,) = problems(path)
    assert problem == f"{path}:6: with what is named with & and used again, there are over 100000 values"


def test_what_is_named_in_yaml_may_be_used_again(tmp_path: Path) -> None:
    listeners = "listener.name.a.ssl: &tls {client.auth: required}\nlistener.name.b.ssl: *tls"
    text = f"{listeners}\nlog.dirs: [&d /d/1, /d/2]\nlog.dir: *d"
    config = load(write(tmp_path, "kafkad.yaml", text), [], {})
    assert [config.value(f"listener.name.{name}.ssl.client.auth") for name in "ab"] == ["required"] * 2
    assert (config.log_dirs, config.value("log.dir")) == (("/d/1", "/d/2"), "/d/1")


def test_a_switch_in_yaml_says_yes_or_no(tmp_path: Path) -> None:
    (problem,) = problems(write(tmp_path, "kafkad.yaml", "auto.create.topics.enable: !!bool maybe"))
    assert "maybe" in problem
    config = load(write(tmp_path, "a.yaml", "auto.create.topics.enable: Off"), [], {})
    assert config.bool("auto.create.topics.enable") is False


def test_a_file_without_a_telling_name_is_judged_by_its_content(tmp_path: Path) -> None:
    assert load(write(tmp_path, "a.conf", "# x\nnum.partitions=4\n"), [], {}).int("num.partitions") == 4
    assert load(write(tmp_path, "b.conf", "# x\nnum.partitions: 4\n"), [], {}).int("num.partitions") == 4


@pytest.mark.parametrize("sign", ["\x0b", "\x1c", "\x85", "\u2028"])
def test_what_ends_a_line_only_for_python_is_part_of_a_value(sign: str) -> None:
    text = f"a={sign}x{sign}y=1\r\nb={sign}\rc{sign}d=1\n"
    assert [(entry.name, entry.text, entry.where) for entry in read_properties("p", text)] == [
        ("a", f"{sign}x{sign}y=1", "p:1"),
        ("b", sign, "p:2"),
        (f"c{sign}d", "1", "p:3"),
    ]


def test_java_properties_syntax() -> None:
    text = "! c\n a = b \\\n   c\nd:e\nf g=h\n\\u0041\\ x=\\t\\u0041\\n\\\\\nempty\ntwice=1\ntwice=2\nend=\\"
    assert [(entry.name, entry.text, entry.where) for entry in read_properties("p", text)] == [
        ("a", "b c", "p:2"),
        ("d", "e", "p:4"),
        ("f", "g=h", "p:5"),
        ("A x", "\tA\n\\", "p:6"),
        ("empty", "", "p:7"),
        ("twice", "2", "p:9"),
        ("end", "", "p:10"),
    ]


def test_listener_settings_fall_back_to_the_general_one() -> None:
    config = load(None, ["max.connections=7", "listener.name.plaintext.max.connections=3"], {})
    assert config.for_listener("PLAINTEXT", "max.connections") == 3
    assert config.for_listener("OTHER", "max.connections") == 7
    assert problems(None, "listener.name.a.num.partitions=3")
    assert "cannot be set" in problems(None, "listener.name.a.ssl.provider=x")[0]


def test_dynamic_settings_go_over_the_file_and_each_other() -> None:
    base = load(None, ["log.segment.bytes=1000"], {})
    config = base.with_overrides(
        cluster_wide={"log.segment.bytes": "2000", "message.max.bytes": "3000", "nope": "1", "num.partitions": "x"},
        per_broker={"log.segment.bytes": "4000", "listeners": "PLAINTEXT://:1"},
    )
    assert (config.int("log.segment.bytes"), config.int("message.max.bytes")) == (4000, 3000)
    assert base.int("log.segment.bytes") == 1000
    assert [warning.split()[2] for warning in config.warnings] == ["nope", "num.partitions", "listeners"]
    assert config.listeners == base.listeners
    assert config.at(Source.STATIC_BROKER_CONFIG, "log.segment.bytes") == 1000
    assert config.at(Source.DYNAMIC_DEFAULT_BROKER_CONFIG, "log.segment.bytes") == 2000
    assert config.with_overrides(cluster_wide={}, per_broker={}).int("log.segment.bytes") == 1000


def test_dynamic_settings_without_effect_are_named() -> None:
    tls = {"ssl.provider": "mine", "ssl.client.auth": "none"}
    config = load(None, [], {}).with_overrides(cluster_wide={}, per_broker=tls)
    assert config.warnings == (f"dynamic setting ssl.provider has no effect: {JAVA}",)


def test_a_reload_applies_what_may_change_and_names_the_rest() -> None:
    running = load(None, ["log.segment.bytes=1000", "num.partitions=1", "broker.rack=a"], {})
    running = running.with_overrides(cluster_wide={}, per_broker={"message.max.bytes": "9000"})
    edited = ["log.segment.bytes=2000", "broker.rack=b", "message.max.bytes=8000", "socket.listen.backlog.size=9"]
    fresh = load(None, edited, {})
    config, changed, restart, _ = running.with_file(fresh)
    assert changed == ("log.segment.bytes",)
    assert restart == ("broker.rack", "num.partitions", "socket.listen.backlog.size")
    assert config.int("log.segment.bytes") == 2000
    assert config.value("broker.rack") == "a"
    assert config.int("message.max.bytes") == 9000


def test_a_name_that_is_not_a_setting_is_a_mistake_of_the_caller() -> None:
    config: Config = load(None, [], {})
    with pytest.raises(KeyError):
        config.value("no.such.setting")


def test_the_last_of_the_same_override_wins() -> None:
    assert load(None, ["broker.id=0", "num.partitions=3", "broker.id=1"], {}).broker_id == 1
    assert problems(None, "broker.id=0", "node.id=1") == [
        "--set node.id: broker.id and node.id differ; set one of them"
    ]


SASL = (
    "listeners=SASL_PLAINTEXT://127.0.0.1:9092",
    "security.inter.broker.protocol=SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=OAUTHBEARER",
)
HANDLER = (
    "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class=org.apache.kafka.common.security."
)


def test_tokens_are_verified_by_keys_or_by_nobody_who_was_not_told_so() -> None:
    [problem] = problems(None, *SASL)
    assert "no keys to verify tokens with: set sasl.oauthbearer.jwks.endpoint.url" in problem
    assert load(None, [*SASL, "kafkad.oauthbearer.unsecured=true"], {}).warnings == ()
    url = "sasl.oauthbearer.jwks.endpoint.url=https://issuer/keys"
    handler = f"{HANDLER}oauthbearer.secured.OAuthBearerValidatorCallbackHandler"
    assert load(None, [*SASL, url, handler, "sasl.oauthbearer.expected.audience=kafka"], {}).warnings == ()
    assert load(None, [*SASL, "listener.name.sasl_plaintext.sasl.oauthbearer.jwks.endpoint.url=file:///keys"], {})
    assert "expected https://… or file:///…" in problems(None, *SASL, url.replace("https", "http"))[0]
    assert "no keys to verify" in problems(None, *SASL, handler, "kafkad.oauthbearer.unsecured=true")[0]
    assert "kafkad runs no Java" in problems(None, *SASL, url, f"{HANDLER}Own")[0]


DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule required"


def test_the_login_at_zookeeper() -> None:
    jaas, server = "kafkad.zookeeper.sasl.jaas.config=", "zookeeper.connect=zk:2181"
    login = load(None, [server, f'{jaas}{DIGEST} username="kafka" password="pw";', "zookeeper.set.acl=true"], {})
    assert login.zookeeper_login is not None
    assert (login.zookeeper_login.username, login.zookeeper_login.password) == ("kafka", "pw")
    assert load(None, [server], {}).zookeeper_login is None
    by_key = ["zookeeper.ssl.client.enable=true", "zookeeper.ssl.keystore.location=/keys.p12"]
    assert load(None, [server, "zookeeper.set.acl=true", *by_key], {}).bool("zookeeper.set.acl")
    for settings, problem in (
        (["zookeeper.set.acl=true"], "ZooKeeper has to know who this broker is; set kafkad.zookeeper.sasl.jaas"),
        (["zookeeper.set.acl=true", by_key[0]], "ZooKeeper has to know who this broker is"),
        ([f'{jaas}{DIGEST} username="kafka";'], 'required username="NAME" password="PASSWORD";'),
        ([f'{jaas}Krb5LoginModule required keyTab="x";'], "Krb5LoginModule is none that kafkad has"),
        ([f"{jaas}{DIGEST}"], jaas[:-1]),
    ):
        [found] = problems(None, server, *settings)
        assert problem in found


def test_settings_for_a_zookeeper_that_is_not_used_may_stay(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("zookeeper.connect=zk:2181\nzookeeper.set.acl=true\n")
    assert load(str(file), ["zookeeper.connect="], {}).zookeeper is None


@pytest.mark.parametrize("line", ["{}=\n", '{}: ""\n'])
def test_hosts_of_peers_are_not_looked_at_where_the_algorithm_is_empty(tmp_path: Path, line: str) -> None:
    name = "ssl.endpoint.identification.algorithm"
    file = "server.properties" if "=" in line else "kafkad.yaml"
    for each in (name, f"listener.name.plaintext.{name}"):
        config = load(write(tmp_path, file, line.format(each)), [], {})
        assert config.for_listener("PLAINTEXT", name) == ""
        assert load(None, [f"{each}="], {}).for_listener("PLAINTEXT", name) == ""
    assert load(None, [], {}).str(name) == "https"


@pytest.mark.parametrize("word", ["htps", "none", "LDAP"])
@pytest.mark.parametrize("prefix", ["", "listener.name.plaintext."])
def test_a_misspelt_check_of_hosts_is_refused_as_by_java(word: str, prefix: str) -> None:
    name = f"{prefix}ssl.endpoint.identification.algorithm"
    [problem] = problems(None, f"{name}={word}")
    assert f"Invalid value {word} for configuration {name}: kafkad has https" in problem
    stored = load(None, [], {}).with_overrides(cluster_wide={}, per_broker={name: word})
    assert stored.for_listener("PLAINTEXT", "ssl.endpoint.identification.algorithm") == "https"
    assert "is ignored: Invalid value" in stored.warnings[0]
    assert load(None, [f"{name}=HTTPS"], {}).for_listener("PLAINTEXT", name.removeprefix(prefix)) == "HTTPS"


def test_a_super_user_of_another_type_than_user_is_told_of() -> None:
    authorizer = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"
    assert load(None, [authorizer, "super.users=user:a;User:b;Group:c"], {}).warnings == (
        "super.users: user:a is nobody: every principal is of the type User; write User:a",
        "super.users: Group:c is nobody: every principal is of the type User; write User:c",
    )


@pytest.mark.parametrize(("word", "is_told"), [("htps", True), ("https", False), ("HTTPS", False), ("", False)])
def test_a_misspelt_check_of_zookeepers_host_is_told_of(word: str, is_told: bool) -> None:
    """Kafka takes it for none."""
    name, tls = "zookeeper.ssl.endpoint.identification.algorithm", "zookeeper.ssl.client.enable=true"
    assert load(None, [tls, f"{name}={word}"], {}).warnings == ()
    warnings = load(None, ["zookeeper.connect=zk:2181", tls, f"{name}={word}"], {}).warnings
    assert any(f"{name}={word} means, as in Kafka, that ZooKeeper may" in each for each in warnings) is is_told


@pytest.mark.parametrize(
    ("session_ms", "store", "is_told"), [(18000, "zk", False), (18001, "zk", True), (18001, "", False)]
)
def test_sessions_that_are_long_beside_the_lag_time_are_told(session_ms: int, store: str, is_told: bool) -> None:
    settings = [f"zookeeper.connect={store}", f"zookeeper.session.timeout.ms={session_ms}"]
    warnings = load(None, settings, {}).warnings
    told = [text for text in warnings if text.startswith("zookeeper.session.timeout.ms=")]
    assert len(told) == is_told


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("server.properties", "log.cleanup.policy=\n"),
        ("kafkad.yaml", "log.cleanup.policy: []\n"),
        ("kafkad.yaml", "log.cleanup.policy: ''\n"),
    ],
)
def test_an_empty_list_in_a_file_is_one_and_not_the_default(tmp_path: Path, file: str, content: str) -> None:
    path = write(tmp_path, file, content)
    config = load(path, [], {})
    assert config.list("log.cleanup.policy") == ()
    assert LogConfig.resolve({}, config).cleanup_policy == frozenset(), "and everything is kept"
    assert load(path, ["log.cleanup.policy="], {}).list("log.cleanup.policy") == ("delete",)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("num.io.threads", "Not a number of type INT"),
        ("log.retention.ms", "Not a number of type LONG"),
        ("log.cleaner.min.cleanable.ratio", "Not a number of type DOUBLE"),
        ("log.preallocate", "Expected value to be either true or false"),
        ("log.message.timestamp.type", "String must be one of: CreateTime, LogAppendTime"),
    ],
)
def test_nothing_is_no_number(tmp_path: Path, name: str, complaint: str) -> None:
    path = write(tmp_path, "server.properties", f"broker.rack=\nlog.cleanup.policy=\n{name}=\n")
    assert problems(path) == [f"{path}:3: Invalid value  for configuration {name}: {complaint}"]
    assert load(path, [f"{name}="], {}).value(name) == BROKER_SETTINGS[name].default


def test_throttles_count_only_where_they_are_set_while_the_broker_runs(tmp_path: Path) -> None:
    throttles = (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
    path = write(tmp_path, "server.properties", "".join(f"{name}=5\n" for name in throttles))
    config = load(path, [], {})
    assert [config.long(name) for name in throttles] == [LONG_MAX] * 3
    assert [warning.partition(" is ignored")[0] for warning in config.warnings] == [
        f"{path}:{line}: {name}" for line, name in enumerate(throttles, 1)
    ]
    dynamic = config.with_overrides(cluster_wide=dict.fromkeys(throttles, "5"), per_broker={})
    assert [dynamic.long(name) for name in throttles] == [5] * 3


def test_keys_and_logins_may_be_dynamic_settings_where_there_is_a_store(tmp_path: Path) -> None:
    at_it = f"log.dirs={tmp_path}"
    for lacking, problem in (
        (("listeners=SSL://127.0.0.1:9092", "security.inter.broker.protocol=SSL"), "listener SSL needs a key"),
        (("http.listener=https://127.0.0.1:9404",), "http.listener: https needs"),
        (("listeners=SASL_PLAINTEXT://127.0.0.1:9092", "security.inter.broker.protocol=SASL_PLAINTEXT"), "GSSAPI"),
    ):
        (tmp_path / METADATA_FILE).unlink(missing_ok=True)
        assert problem in problems(None, at_it, *lacking)[0]
        load(None, [at_it, *lacking, "zookeeper.connect=zk:2181"], {})
        (tmp_path / METADATA_FILE).touch()
        [found] = contradictions(load(None, [at_it, *lacking], {}))
        assert problem in found
        assert "log.dirs names no directory" in problems(None, at_it, *lacking, "log.dirs=,")


def test_brokers_log_in_at_each_other_by_tokens_of_a_file_or_an_issuer(tmp_path: Path) -> None:
    (tmp_path / METADATA_FILE).touch()
    by_tokens = (
        *SASL,
        f"log.dirs={tmp_path}",
        "kafkad.oauthbearer.unsecured=true",
        "sasl.mechanism.inter.broker.protocol=OAUTHBEARER",
    )
    assert load(None, by_tokens, {}).warnings == ()
    url, own = "sasl.oauthbearer.token.endpoint.url=", "listener.name.sasl_plaintext.oauthbearer."
    module = f"{own}sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    handler = f"{own}sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer."
    issuer = f"listener.name.sasl_plaintext.{url}https://issuer/token"
    for others in ("zookeeper.connect=zk:2181", "kafkad.brokers=3"):
        for settings, problem in (
            ([], "set listener.name.sasl_plaintext.sasl.oauthbearer.token.endpoint.url to where brokers get the token"),
            ([f"{url}http://issuer/token"], "set listener.name.sasl_plaintext.sasl.oauthbearer.token.endpoint.url"),
            ([issuer], f"{own}sasl.jaas.config needs clientId and clientSecret"),
            ([issuer, f'{module} clientId="broker";'], f"{own}sasl.jaas.config needs clientId and clientSecret"),
            ([f"{url}file:///token", f"{handler}Mine"], "kafkad runs no Java"),
        ):
            [found] = contradictions(load(None, [*by_tokens, others, *settings], {}))
            assert problem in found
        with_secret = [issuer, f'{module} clientId="broker" clientSecret="x";']
        for good in ([f"{url}file:///token"], with_secret, [*with_secret, f"{handler}OAuthBearerLoginCallbackHandler"]):
            load(None, [*by_tokens, others, *good], {})
