"""The command line up to the point where a broker would start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkad import __version__
from kafkad.__main__ import main
from kafkad.names import METADATA_FILE
from tests.certificates import Authority


def test_check_says_what_would_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=0\nlog.dirs=/data/a,/data/b\nzookeeper.connect=localhost:2181\nnum.io.threads=16\n")
    assert main(["--config", str(file), "--set", "listeners=PLAINTEXT://[::1]:9092", "--check"]) == 0
    *warnings, verdict = capsys.readouterr().out.splitlines()
    assert verdict == (
        "configuration is good: listens on PLAINTEXT://[::1]:9092; data in /data/a, /data/b; "
        "metadata in ZooKeeper at localhost:2181"
    )
    assert warnings[0].startswith("warning: no effect: num.io.threads")


def test_check_touches_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    assert main(["--check"]) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "state", "place"),
    [
        ([], None, "$STATE_DIRECTORY or kafkad-data"),
        ([], "/var/lib/kafkad", "/var/lib/kafkad"),
        (["--set", "log.dir=/data"], None, "/data"),
    ],
)
def test_check_says_where_data_would_be(
    options: list[str],
    state: str | None,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The one who checks a unit's file has not the directory that systemd names for the unit."""
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    if state is not None:
        monkeypatch.setenv("STATE_DIRECTORY", state)
    assert main([*options, "--check"]) == 0
    assert capsys.readouterr().out.endswith(f"; data in {place}\n")


@pytest.mark.parametrize("more", [[], ["--check"]])
def test_brokers_of_a_host_need_a_file_that_each_of_them_can_read(
    capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    """A pipe is empty for the second one."""
    reading, writing = os.pipe()
    os.write(writing, b"kafkad.brokers: 2\n")
    os.close(writing)
    path = f"/dev/fd/{reading}"
    assert main(["--config", path, *more]) == 2
    os.close(reading)
    assert capsys.readouterr().err == f"kafkad: {path} is no regular file, and each of the brokers has to read it\n"


def test_a_broker_that_is_started_again_takes_no_blank_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its supervisor, when it had run by one that set something."""
    file = tmp_path / "kafkad.yaml"
    file.write_text("# only the header\n")
    words = ["--config", str(file), "--check"]
    assert main(words) == 0
    assert main([*words, "--refuse-blank-file"]) == 2
    assert capsys.readouterr().err == f"kafkad: {file} sets nothing any more; to run by the defaults, restart kafkad\n"
    file.write_text("num.partitions: 1\n")
    assert main([*words, "--refuse-blank-file"]) == 0


def test_a_bad_configuration_is_exit_2_with_every_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kafkad.yaml"
    file.write_text("log.segment.byte: 1\nnum.partitions: none\n")
    assert main(["--config", str(file)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"kafkad: {file}:1: log.segment.byte is not a setting; did you mean log.segment.bytes?",
        f"kafkad: {file}:2: Invalid value none for configuration num.partitions: Not a number of type INT",
    ]


def test_an_unknown_option_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--frobnicate"])
    assert caught.value.code == 2
    assert "--frobnicate" in capsys.readouterr().err


def test_version_and_help_by_the_module(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "kafkad", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"kafkad {__version__}\n"
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "--set NAME=VALUE" in capsys.readouterr().out


@pytest.mark.parametrize("key", ["", "ssl.keystore.location=/nonexistent/keys.pem"])
def test_check_refuses_no_keys_that_a_dynamic_setting_may_stand_in_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    listener = ["listeners=SSL://127.0.0.1:9093", "security.inter.broker.protocol=SSL", f"log.dirs={tmp_path}"]
    options = [word for setting in (*listener, key) if setting for word in ("--set", setting)]
    assert main([*options, "--check"]) == 2
    (tmp_path / METADATA_FILE).touch()
    assert main([*options, "--check"]) == 0
    assert "dynamic settings of the broker, which --check does not read, may mend it" in capsys.readouterr().out


AUTHORIZER = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"


@pytest.mark.parametrize(
    ("super_users", "user"),
    [("User:admin", "User:kafka-1"), ("User:admin;User:kafka-1", None), ("User:CN=kafka-1", "User:kafka-1")],
)
def test_check_says_that_a_broker_is_no_super_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], super_users: str, user: str | None
) -> None:
    authority = Authority()
    keys = authority.issue("kafka-1").write(tmp_path / "keys.pem")
    settings = [
        "listeners=SSL://localhost:9093",
        "inter.broker.listener.name=SSL",
        f"ssl.keystore.location={keys}",
        f"ssl.truststore.location={authority.write(tmp_path / 'ca.pem')}",
        "ssl.client.auth=required",
        "ssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/",
        AUTHORIZER,
        f"super.users={super_users}",
    ]
    options = [word for each in settings for word in ("--set", each)]
    assert main([*options, "--check"]) == 0
    assert "who is not in super.users" not in capsys.readouterr().out, "there are no others"
    assert main([*options, "--set", "zookeeper.connect=zk:2181", "--check"]) == 0
    out = capsys.readouterr().out
    assert (f"warning: brokers come to the listener SSL as {user}, who is not in super.users" in out) == bool(user)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file or directory"),
        ("[]", "it is no set of keys in JSON"),
        ('{"keys": []}', "it has no key by which tokens can be verified"),
        ('{"keys": [{"kid": "a", "kty": "oct", "k": "c2VjcmV0"}]}', "verified; key 'a': a key of the type oct cannot"),
    ],
)
def test_check_looks_at_a_file_with_the_keys_of_an_issuer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, why: str
) -> None:
    file = tmp_path / "keys.json"
    if content is not None:
        file.write_text(content)
    assert main([*with_issuer(f"file://{file}", tmp_path / "data"), "--check"]) == 2
    problem = capsys.readouterr().err
    assert f"kafkad: listener SASL_PLAINTEXT: sasl.oauthbearer.jwks.endpoint.url=file://{file}: " in problem
    assert why in problem


def test_check_looks_at_who_vouches_for_an_issuer_and_does_not_ask_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trusted = tmp_path / "ca.pem"
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    line = f"listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config={module} required "
    options = [
        *with_issuer("https://127.0.0.1:1/keys", tmp_path / "data"),
        "--set",
        f'{line}ssl.truststore.location="{trusted}";',
    ]
    assert main([*options, "--check"]) == 2
    assert "endpoint.url=https://127.0.0.1:1/keys: [Errno 2] No such file" in capsys.readouterr().err
    Authority().write(trusted)
    assert main([*options, "--check"]) == 0


def with_issuer(url: str, data: Path) -> list[str]:
    """A broker without data: dynamic settings could mend it otherwise."""
    settings = (
        f"log.dirs={data}",
        "listeners=SASL_PLAINTEXT://127.0.0.1:9092",
        "inter.broker.listener.name=SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=OAUTHBEARER",
        "sasl.oauthbearer.expected.audience=kafka",
        f"sasl.oauthbearer.jwks.endpoint.url={url}",
    )
    return [word for each in settings for word in ("--set", each)]


def test_check_says_how_many_brokers_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--brokers", "3", "--set", "log.dirs=/data", "--set", "listeners=PLAINTEXT://:9092", "--check"]
    assert main([*options, "--set", "kafkad.insecure=true"]) == 0
    verdict = "configuration is good: 3 brokers, the first listens on PLAINTEXT://:9092; data in /data\n"
    assert capsys.readouterr().out == verdict
    assert main(["--brokers", "none", "--check"]) == 2
    assert "--set kafkad.brokers: Invalid value none" in capsys.readouterr().err
