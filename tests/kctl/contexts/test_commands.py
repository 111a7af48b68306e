"""`kctl contexts …`."""

from __future__ import annotations

import io
import json
import re
import signal
import socket
import threading
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Event, Thread

import pytest

from kafkad.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from kctl.contexts import delete as deleting
from kctl.contexts import importing
from kctl.contexts.set import changed
from kctl.contexts.test import Place, Step, Trial, of_one_cluster, tried
from kctl.errors import Exit
from kctl.reach.access import Access
from kctl.reach.connection import Address
from kctl.reach.contexts_file import Contexts, path, read
from tests import certificates
from tests.broker import KafkadProcess
from tests.kctl.certificates import Authority
from tests.kctl.conftest import Kctl
from tests.kctl.flaky import Flaky

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "kctl" / "contexts.yaml"
    monkeypatch.setenv("KCTL_CONFIG", str(file))
    return file


def test_life_of_a_context(kctl: Kctl, file: Path) -> None:
    ran = kctl("contexts", "set", "prod", "bootstrap=a:1,b:2", "client_id=me", "protected=yes")
    assert ran == (Exit.DONE, "", "context prod is made\nundo: kctl contexts delete prod\n")
    assert kctl("contexts", "set", "dev", "bootstrap=c").code == Exit.DONE
    assert kctl("contexts", "list").out == (
        "NAME  CURRENT  BOOTSTRAP  PROTOCOL   SASL  USER  PROTECTED\n"
        "prod  *        a:1,b:2    PLAINTEXT  -     -     True\n"
        "dev            c          PLAINTEXT  -     -     False\n"
    )
    assert kctl("contexts", "use", "dev").err == "dev is the current context; it was prod\n"
    assert kctl("contexts", "set", "prod", "client_id=", "protected=false").err == "context prod is changed\n"
    assert read(str(file)) == Contexts(
        "dev", {"prod": {"bootstrap": "a:1,b:2", "protected": False}, "dev": {"bootstrap": "c"}}
    )
    assert kctl("contexts", "delete", "dev", "-y").err == "context dev is deleted; there is no current one now\n"
    assert kctl("contexts", "show").code == Exit.NOT_FOUND
    assert kctl("contexts", "ls", "-o", "name").out == "prod\n"
    assert file.stat().st_mode & 0o777 == 0o600


def test_none_yet(kctl: Kctl, file: Path) -> None:
    ran = kctl("contexts", "list", "-o", "json")
    assert json.loads(ran.out)["items"] == []
    assert "kctl contexts set NAME bootstrap=HOST:PORT makes one" in ran.err


@pytest.mark.parametrize("verb", [["use"], ["show"], ["test"], ["delete", "-y"]])
def test_context_that_is_not_there(kctl: Kctl, file: Path, verb: list[str]) -> None:
    kctl("contexts", "set", "prod", "bootstrap=a")
    ran = kctl("contexts", *verb, "prd")
    assert (ran.code, ran.err) == (
        Exit.NOT_FOUND,
        'error: there is no context "prd"\n       did you mean "prod"?\n',
    )


def test_secrets_are_hidden(kctl: Kctl, file: Path) -> None:
    kctl("contexts", "set", "prod", "bootstrap=a", "password=sesame", "key_password_file=/run/key", "token_command=tok")
    kctl("contexts", "set", "prod", "key=-----BEGIN PRIVATE KEY-----x", "certificate=-----BEGIN CERTIFICATE-----y")
    for form in ("table", "json", "yaml", "csv"):
        ran = kctl("contexts", "show", "prod", "-o", form)
        assert "sesame" not in ran.out
        assert "PRIVATE" not in ran.out
        assert "(hidden)" in ran.out
        assert "/run/key" in ran.out
    assert "sesame" not in kctl("contexts", "list", "-o", "json").out


def test_secret_from_standard_input(kctl: Kctl, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(" sesame \nmore\n"))
    assert kctl("contexts", "set", "prod", "password=-", "username=-").code == Exit.DONE
    assert read(str(file)).contexts["prod"] == {"password": " sesame ", "username": "-"}


def test_what_another_kctl_changes_while_a_secret_is_typed_stays_so(
    kctl: Kctl, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Typing(io.StringIO):
        def readline(self, size: int | None = -1) -> str:
            assert kctl("contexts", "set", "b", "bootstrap=b").code == Exit.DONE
            assert kctl("contexts", "set", "a", "username=alice").code == Exit.DONE
            assert kctl("contexts", "delete", "old", "-y").code == Exit.DONE
            return "sesame\n"

    for name in ("old", "a"):
        kctl("contexts", "set", name, f"bootstrap={name}")
    monkeypatch.setattr("sys.stdin", Typing())
    assert kctl("contexts", "set", "a", "password=-").code == Exit.DONE
    a = {"bootstrap": "a", "username": "alice", "password": "sesame"}
    assert read(str(file)) == Contexts("a", {"a": a, "b": {"bootstrap": "b"}})


@pytest.mark.parametrize(
    ("words", "meanwhile", "code", "left"),
    [
        (["delete", "a"], ["set", "b", "bootstrap=b"], Exit.DONE, ["b"]),
        (["delete", "a"], ["delete", "a", "-y"], Exit.NOT_FOUND, []),
        (["import", "c.properties", "--name", "a"], ["set", "b", "bootstrap=b"], Exit.DONE, ["a", "b"]),
    ],
)
def test_what_another_kctl_changes_during_a_question_stays_so(
    kctl: Kctl,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    meanwhile: list[str],
    code: Exit,
    left: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.properties").write_text("bootstrap.servers=c:1\n")
    kctl("contexts", "set", "a", "bootstrap=a")
    asked: list[str] = []

    def confirm(settings: object, question: str) -> None:
        asked.append(question)
        if len(asked) == 1:
            kctl("contexts", *meanwhile)

    for module in (deleting, importing):
        monkeypatch.setattr(module, "confirm", confirm)
    assert kctl("contexts", *words).code == code
    assert asked
    assert list(read(str(file)).contexts) == left


def test_an_import_replaces_no_context_that_it_has_not_asked_about(
    kctl: Kctl, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another kctl makes it just before the import is saved."""
    properties = tmp_path / "c.properties"
    properties.write_text("bootstrap.servers=c:1\n")
    monkeypatch.setattr(importing, "keep_writing", lambda: kctl("contexts", "set", "a", "bootstrap=a"))
    ran = kctl("contexts", "import", properties, "--name", "a")
    assert (ran.code, 'context "a" is new: somebody else has just made it' in ran.err) == (Exit.REFUSED, True)
    assert read(str(file)).contexts == {"a": {"bootstrap": "a"}}
    assert kctl("contexts", "import", properties, "--name", "a", "-y").code == Exit.DONE


def test_new_secret_replaces_the_old_way_to_it() -> None:
    before = {"bootstrap": "a", "password_command": "pass", "token": "t"}
    assert changed(before, [("password", "sesame")]) == {"bootstrap": "a", "token": "t", "password": "sesame"}
    assert changed(before, [("password", "")]) == {"bootstrap": "a", "token": "t"}
    assert changed(before, [("token_file", "x"), ("bootstrap", "")]) == {"password_command": "pass", "token_file": "x"}


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        (["bootstraps=a"], Exit.USAGE, 'contexts have no field "bootstraps"'),
        (["bootstrap"], Exit.USAGE, '"bootstrap" is not FIELD=VALUE'),
        (["bootstrap=a:b"], Exit.USAGE, '"a:b" is not an address'),
        (["protected=maybe"], Exit.USAGE, "protected must be true or false"),
        (["security_protocol=SASL_SSL"], Exit.DONE, "it cannot be used yet: no SASL mechanism is given"),
    ],
)
def test_fields_that_make_no_sense(kctl: Kctl, file: Path, fields: list[str], code: Exit, text: str) -> None:
    ran = kctl("contexts", "set", "prod", *fields)
    assert ran.code == code
    assert text in ran.err
    assert file.exists() == (code == Exit.DONE)


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a\nb"])
def test_names_that_no_context_has(kctl: Kctl, file: Path, name: str) -> None:
    assert kctl("contexts", "set", name, "bootstrap=a").code == Exit.USAGE


def test_nothing_is_deleted_unasked(kctl: Kctl, file: Path) -> None:
    kctl("contexts", "set", "prod", "bootstrap=a")
    ran = kctl("contexts", "delete", "prod")
    assert ran.code == Exit.REFUSED
    assert "no terminal to confirm on" in ran.err
    ran = kctl("contexts", "delete", "prod", "--dry-run", "-o", "json")
    assert (ran.code, json.loads(ran.out)["dry_run"]) == (Exit.DONE, True)
    assert ran.err == "dry run: nothing was changed; otherwise context prod is deleted\n"
    assert list(read(str(file)).contexts) == ["prod"]


def test_of_settings_that_are_not_used_only_harmless_ones_are_shown(kctl: Kctl, tmp_path: Path) -> None:
    properties = tmp_path / "c.properties"
    properties.write_text(
        "bootstrap.servers=a:1\nbasic.auth.user.info=bob:sesame\nclient.rack=r1\nmax.poll.records=7\n"
        "schema.registry.url=https://bob:sesame@registry/\n"
    )
    assert kctl("contexts", "import", properties, "--name", "prod").code == Exit.DONE
    ran = kctl("contexts", "show", "prod", "-o", "json")
    shown = {item["field"]: item["value"] for item in json.loads(ran.out)["items"]}
    assert (shown["basic.auth.user.info"], shown["client.rack"]) == ("(hidden)", "r1")
    assert shown["max.poll.records"] == "7"
    assert shown["schema.registry.url"] == "https://(hidden)@registry/"


def test_import(kctl: Kctl, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    Path("client.properties").write_text(
        "bootstrap.servers=a:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} required username="alice" password="sesame";\n'
        "ssl.truststore.location=ca.pem\ngroup.id=x\nschema.registry.password=sesame\n"
    )
    ran = kctl("contexts", "import", "client.properties", "--name", "prod")
    told = "context prod is made of client.properties\nundo: kctl contexts delete prod\n"
    assert (ran.code, ran.err) == (Exit.DONE, told)
    assert [line.split() for line in ran.out.splitlines()] == [
        ["SETTING", "FIELD", "VALUE"],
        ["bootstrap.servers", "bootstrap", "a:1"],
        ["security.protocol", "security_protocol", "SASL_SSL"],
        ["sasl.mechanism", "mechanism", "PLAIN"],
        ["ssl.truststore.location", "ca", "ca.pem"],
        ["sasl.jaas.config", "username", "alice"],
        ["sasl.jaas.config", "password", "(hidden)"],
        ["group.id", "-", "x"],
        ["schema.registry.password", "-", "(hidden)"],
    ]
    assert read(str(file)).contexts["prod"] == {
        "bootstrap": "a:1",
        "security_protocol": "SASL_SSL",
        "mechanism": "PLAIN",
        "ca": str(tmp_path / "ca.pem"),
        "username": "alice",
        "password": "sesame",
        "properties": {"group.id": "x", "schema.registry.password": "sesame"},
    }
    assert "sesame" not in kctl("contexts", "show", "prod").out
    assert kctl("contexts", "import", "client.properties", "--name", "prod").code == Exit.REFUSED
    assert kctl("contexts", "import", "client.properties", "--name", "prod", "-y").code == Exit.DONE


def test_import_of_a_file_that_names_no_broker(kctl: Kctl, file: Path, tmp_path: Path) -> None:
    (tmp_path / "tool.properties").write_text("security.protocol=PLAINTEXT\n")
    ran = kctl("contexts", "import", tmp_path / "tool.properties", "--name", "prod")
    assert "it does not say where the brokers are: kctl contexts set prod bootstrap=HOST:PORT" in ran.err


def test_import_of_a_java_store(kctl: Kctl, file: Path, tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    properties = tmp_path / "client.properties"
    properties.write_text(f"security.protocol=SSL\nssl.truststore.location={store}\n")
    ran = kctl("contexts", "import", properties, "--name", "prod")
    assert (ran.code, file.exists()) == (Exit.USAGE, False)
    assert f"keytool -importkeystore -srckeystore {store} -destkeystore {tmp_path}/trust.p12" in ran.err


def test_import_where_there_is_no_openssl(
    kctl: Kctl, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    store = authority.pkcs12_of_ca("x")
    properties = tmp_path / "client.properties"
    properties.write_text(f"security.protocol=SSL\nssl.truststore.location={store}\n")
    monkeypatch.setenv("PATH", "")
    ran = kctl("contexts", "import", properties, "--name", "prod")
    assert ran.code == Exit.USAGE
    assert f"openssl pkcs12 -in {store} -out {tmp_path}/trust.pem" in ran.err


def test_import_of_no_file(kctl: Kctl, file: Path) -> None:
    assert kctl("contexts", "import", "/nowhere/at.all", "--name", "prod").code == Exit.NOT_FOUND


def test_steps_of_a_test(kctl: Kctl, file: Path, broker: KafkadProcess) -> None:
    kctl("contexts", "set", "dev", f"bootstrap={broker.bootstrap}")
    ran = kctl("contexts", "test", "-o", "json")
    assert ran.code == Exit.DONE
    items = json.loads(ran.out)["items"]
    assert [(item["step"], item["result"]) for item in items] == [
        ("DNS", "ok"),
        ("TCP", "ok"),
        ("ApiVersions", "ok"),
        ("Metadata", "ok"),
    ]
    assert all(item["milliseconds"] >= 0 for item in items)
    assert items[3]["found"].endswith(f"at {broker.bootstrap}")


def test_test_that_fails_says_where(kctl: Kctl, file: Path, broker: KafkadProcess) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        refused = f"127.0.0.1:{closed.getsockname()[1]}"
        ran = kctl("contexts", "test", "-b", f"{refused},{broker.bootstrap},no.such.host.invalid:1", "-o", "json")
    assert ran.code == Exit.UNREACHABLE
    failed = [item for item in json.loads(ran.out)["items"] if item["result"] == "error"]
    assert [(item["address"], item["step"], item["found"]) for item in failed] == [
        (refused, "TCP", "connection refused"),
        ("no.such.host.invalid:1", "DNS", "no such host"),
    ]
    assert ran.err.splitlines() == [
        f"error: {refused}  connection refused",
        "error: no.such.host.invalid:1  no such host",
    ]


STEPS = ["DNS", "TCP", "ApiVersions", "Metadata"]


def test_addresses_that_brokers_advertise_are_tested_too(kctl: Kctl, pair: tuple[Flaky, Flaky]) -> None:
    """Clients connect there next, and nothing else tells that they cannot."""
    first, other = pair
    ran = kctl("contexts", "test", "-b", first.address, "-o", "json")
    assert ran.code == Exit.DONE
    items = json.loads(ran.out)["items"]
    assert [(item["address"], item["step"]) for item in items] == [
        (str(broker.address), step) for broker in (first, other) for step in STEPS
    ]
    first.peers[2] = Address("no.such.host.invalid", 1)
    ran = kctl("contexts", "test", "-b", first.address, "--columns", "address,step,found", "--no-headers")
    assert ran.code == Exit.UNREACHABLE
    assert ran.out.splitlines()[-1].split(maxsplit=2) == ["no.such.host.invalid:1", "DNS", "no such host"]
    assert ran.err.splitlines()[0] == "error: broker 2 at no.such.host.invalid:1  no such host"
    assert "see advertised.listeners" in ran.err


def test_addresses_are_tested_all_at_once(kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the context, then those that brokers advertise. None has less time, and the test takes no longer,
    because others do not answer."""
    all_at_once = Barrier(40, timeout=5)
    advertised = [MetadataResponseBroker(node_id=port, host="h", port=port) for port in range(41, 81)]

    def wait_for_all(place: Place, access: Access, seconds: float) -> Trial:
        all_at_once.wait()
        return Trial(place, (Step("Metadata", 0, f"broker {place.broker}"),), MetadataResponse(brokers=advertised))

    monkeypatch.setattr("kctl.contexts.test.tried", wait_for_all)
    given = ",".join(f"h:{port}" for port in range(1, 41))
    ran = kctl("contexts", "test", "-b", given, "-o", "json")
    found = [(item["address"], item["found"]) for item in json.loads(ran.out)["items"]]
    assert found == [(f"h:{n}", f"broker {n if n > 40 else None}") for n in range(1, 81)]


def test_ctrl_c_waits_for_no_address(kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    main = threading.main_thread().ident
    assert main is not None
    interrupted = Barrier(2, action=lambda: signal.pthread_kill(main, signal.SIGINT), timeout=5)
    released, ended = Event(), []

    def never_answers(place: Place, access: Access, seconds: float) -> Trial:
        interrupted.wait()
        released.wait(5)
        ended.append(place.address)
        return Trial(place, (Step("ApiVersions", 0, ""),), None)

    monkeypatch.setattr("kctl.contexts.test.tried", never_answers)
    ran = kctl("contexts", "test", "-b", "h:1,h:2")
    assert (ran.code, ended) == (Exit.INTERRUPTED, [])
    released.set()


def test_an_address_of_something_else_leaves_the_others(kctl: Kctl, pair: tuple[Flaky, Flaky]) -> None:
    """What answers an ApiVersions request with nothing that can be read."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"\0\0\0\5hello")

        thread = Thread(target=speak)
        thread.start()
        odd = f"127.0.0.1:{server.getsockname()[1]}"
        ran = kctl("contexts", "test", "-b", f"{odd},{pair[0].address}", "-o", "json")
        thread.join()
    assert (ran.code, ran.err.splitlines()[0]) == (Exit.UNREACHABLE, f"error: {odd} does not speak the Kafka protocol")
    items = json.loads(ran.out)["items"]
    assert {item["address"] for item in items if item["step"] == "Metadata"} == {str(each.address) for each in pair}


def test_an_advertised_address_in_another_cluster_fails_the_test(kctl: Kctl, pair: tuple[Flaky, Flaky]) -> None:
    first, other = pair
    other.cluster_id = "theirs"
    ran = kctl("contexts", "test", "-b", first.address, "-o", "json")
    assert ran.code == Exit.REFUSED
    last = json.loads(ran.out)["items"][-1]
    assert (last["step"], last["found"]) == ("Metadata", "is a broker of cluster theirs, not of ours")
    assert f"broker 2 advertises {other.address}, which is a broker of cluster theirs" in ran.err
    assert "see advertised.listeners of broker 2" in ran.err


def test_addresses_of_two_clusters_fail_the_test(kctl: Kctl, pair: tuple[Flaky, Flaky]) -> None:
    first, other = pair
    other.cluster_id, other.peers = "theirs", {7: Address("no.such.host.invalid", 1)}
    of_theirs = "is a broker of cluster theirs, not of ours"

    def tested() -> tuple[list[list[str]], list[str]]:
        ran = kctl("contexts", "test", "-b", f"{first.address},{other.address}", "-o", "json")
        assert ran.code == Exit.REFUSED
        failed = [item for item in json.loads(ran.out)["items"] if item["result"] == "error"]
        return [[item["address"], item["step"], item["found"]] for item in failed], ran.err.splitlines()

    advertises = f"broker 2 advertises {other.address}, which {of_theirs}"
    assert tested() == (
        [[str(other.address), "Metadata", advertises]],
        [f"error: {advertises}", "       see advertised.listeners of broker 2"],
    )
    del first.peers[2]
    assert tested() == (
        [[str(other.address), "Metadata", of_theirs]],
        [f"error: {other.address} {of_theirs}", "       bootstrap addresses have to be of one cluster"],
    )


@pytest.mark.parametrize(
    ("told", "fail"),
    [
        (["ours", "ours"], [False, False]),
        ([None, "ours", None, "theirs"], [False, False, False, True]),
        ([None, None], [False, False]),
        ([], []),
    ],
)
def test_the_first_cluster_told_of_is_the_one_that_is_meant(told: list[str | None], fail: list[bool]) -> None:
    """A broker that tells none, as an old one, is taken for one of it."""
    trials = [
        Trial(Place(Address("h", port)), (Step("Metadata", 0, ""),), MetadataResponse(cluster_id=cluster))
        for port, cluster in enumerate(told)
    ]
    assert [trial.error is not None for trial in of_one_cluster(trials)] == fail


def test_test_of_a_plaintext_port_in_tls(kctl: Kctl, file: Path, broker: KafkadProcess) -> None:
    ran = kctl("contexts", "test", "-b", broker.bootstrap, "-X", "security.protocol=SSL", "--no-headers")
    assert ran.code == Exit.UNREACHABLE
    assert "TLS handshake failed: " in ran.err
    assert "a plaintext port?" in ran.err


def test_the_end_of_a_certificate_is_told_to_the_second(tmp_path: Path) -> None:
    authority = certificates.Authority()
    soon = authority.issue(until=timedelta(seconds=90))
    context = certificates.server_context(soon, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            peer, _ = server.accept()
            with context.wrap_socket(peer, server_side=True):
                """Nothing is said after the handshake."""

        thread = Thread(target=greet)
        thread.start()
        access = Access(security_protocol="SSL", ca=str(authority.write(tmp_path / "ca.pem")))
        trial = tried(Place(Address("127.0.0.1", server.getsockname()[1])), access, 10)
        thread.join()
    (told,) = [step.found for step in trial.steps if step.name == "TLS"]
    when = soon.certificate.not_valid_after_utc.strftime("%Y-%m-%d %H:%M:%S UTC")
    assert re.fullmatch(rf"TLSv1.3, certificate valid until {when} \(1m[0-3]\ds left\)", told)


@pytest.mark.parametrize("setting", ["ssl.ca.location", "ssl.certificate.location"])
def test_a_file_that_is_not_there_is_named(kctl: Kctl, file: Path, broker: KafkadProcess, setting: str) -> None:
    ran = kctl(
        "contexts", "test", "-b", broker.bootstrap, "-X", "security.protocol=SSL", "-X", f"{setting}=/nowhere.pem"
    )
    assert ran.code == Exit.NOT_FOUND
    assert ran.err == "error: /nowhere.pem: No such file or directory\n"
    assert "/nowhere.pem: No such file or directory" in ran.out


def test_wants_a_login_that_kafkad_does_not_give(kctl: Kctl, file: Path, broker: KafkadProcess) -> None:
    kctl("contexts", "set", "dev", "security_protocol=SASL_PLAINTEXT", "mechanism=PLAIN", "username=a", "password=b")
    ran = kctl("contexts", "test", "dev", "-b", broker.bootstrap, "--columns", "step,result", "--no-headers")
    assert ran.code in (Exit.UNREACHABLE, Exit.UNAUTHORIZED)
    assert ran.out.split()[-2:] == ["SASL", "error"]


def test_where_the_file_is_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert path({"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}) == f"{tmp_path}/kctl/contexts.yaml"
