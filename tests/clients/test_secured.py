"""Every client at every kind of listener, with every mechanism; and what each is told when it is not let in.

Few are refused, for from the tenth wrong password within a minute on they wait.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kctl.cli import run
from tests.clients.conftest import TARGETS
from tests.clients.one_jvm import Tools
from tests.clients.secured import ALLOWED_URLS, PASSWORD, USER, WAYS, Secured, Way, secured
from tests.clients.secured_clients import AioKafka, Client, Confluent, FranzGo, Java, KafkaPython
from tests.oracle.kafka import missing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

VALUES = [b"A", b"B" * 100_000, b"C" * 5_000_000]
JAVA = {"Kafka's Java client 3.9": "3.9", "Kafka's Java client 4.3": "4.3"}
CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", *JAVA, "franz-go")


@pytest.fixture(scope="module", params=TARGETS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if request.param != "kafkad" and (reason := missing("3.9")):
        pytest.skip(reason)
    with secured(request.param, tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture(scope="module")
def client_named(
    request: pytest.FixtureRequest, broker: Secured, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Client]]:
    directory = tmp_path_factory.mktemp("clients")
    with ExitStack() as running:

        @functools.cache
        def made(name: str) -> Client:
            if name in JAVA:
                if reason := missing(JAVA[name]):
                    pytest.skip(reason)
                tools = running.enter_context(Tools(JAVA[name], f"{ALLOWED_URLS}{','.join(broker.tokens)}"))
                return Java(JAVA[name], tools, directory)
            if name == "franz-go":
                return FranzGo(request.getfixturevalue("franz"))
            return {"confluent-kafka": Confluent, "kafka-python": KafkaPython, "aiokafka": AioKafka}[name]()

        yield made


@pytest.fixture
def client(request: pytest.FixtureRequest, client_named: Callable[[str], Client]) -> Client:
    return client_named(request.param)


def each_client(label: str) -> pytest.MarkDecorator:
    """As the tables of docs/compatibility.md have it."""
    marks = {name: [pytest.mark.client(name, label), *([pytest.mark.java] if name in JAVA else [])] for name in CLIENTS}
    return pytest.mark.parametrize("client", [pytest.param(name, marks=marks[name]) for name in CLIENTS], indirect=True)


@each_client("records of 1 B, 100 KB and 5 MB over {way}")
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_records_of_every_size(broker: Secured, client: Client, name: Callable[[], str], way: Way) -> None:
    assert client.back(broker.access(way), name(), VALUES) == VALUES


NOT_VERIFIED = "certificate verify failed|failed to verify certificate|SSL handshake failed"
REFUSED = {
    "a wrong password": "invalid credentials with SASL mechanism SCRAM-SHA-512",
    "a token that has expired": '"status":"invalid_token"',
    "a broker's certificate that has expired": NOT_VERIFIED,
    "a broker's certificate of another authority": NOT_VERIFIED,
    "a certificate that has expired": "certificate.expired|expired certificate|certificate.unknown|unknown certificate",
    "a certificate of another authority": "unknown.ca|unknown certificate|certificate.unknown|bad.certificate",
    "no certificate": "certificate.required|bad.certificate",
}
"""Why → what a client says then. Kafka's TLS tells less of why a certificate is no good than OpenSSL does."""
SAYS_LESS = {
    ("aiokafka", "a token that has expired"): "No broker metadata found",
    ("franz-go", "a token that has expired"): "unexpected data in oauth response",
    ("aiokafka", "a certificate that has expired"): "closed",
    ("aiokafka", "a certificate of another authority"): "closed",
    ("aiokafka", "no certificate"): "closed",
}
"""Clients that do not pass on what they are told."""
LEFT_ALONE = "socket disconnected"
"""What kafka-python says of a login that Kafka refuses: it passes over what comes together with the end."""


@each_client("told why it is not let in: {why}")
@pytest.mark.parametrize("why", REFUSED)
def test_who_is_not_let_in_is_told_why(
    request: pytest.FixtureRequest, broker: Secured, client: Client, why: str
) -> None:
    params = request.node.callspec.params
    said = SAYS_LESS.get((params["client"], why), REFUSED[why])
    if params["client"] == "kafka-python" and params["broker"] != "kafkad":
        said = f"{said}|{LEFT_ALONE}"
    assert re.search(said, client.refusal(broker.refused(why)), re.IGNORECASE)


@pytest.mark.parametrize(
    ("mechanism", "password"),
    [*((mechanism, PASSWORD) for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")), ("SCRAM-SHA-256", "wrong")],
)
def test_kctl_with_a_context(
    broker: Secured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    mechanism: str,
    password: str,
) -> None:
    """It says at which step a login fails."""
    monkeypatch.setenv("KCTL_CONFIG", str(tmp_path / "contexts.yaml"))
    access = broker.access(Way("SASL_SSL", mechanism))
    lines = [
        f"bootstrap.servers={access.bootstrap}",
        f"security.protocol={access.protocol}",
        f"ssl.ca.location={access.trusted}",
        f"sasl.mechanism={mechanism}",
        f"sasl.username={USER}",
        f"sasl.password={password}",
    ]
    properties = tmp_path / "client.properties"
    properties.write_text("\n".join(lines), encoding="latin-1")
    properties.chmod(0o600)
    assert run(["contexts", "import", "--name", "here", str(properties)]) == 0
    capfd.readouterr()
    code = run(["-c", "here", "contexts", "test"])
    said = capfd.readouterr()
    assert (code == 0) == (password == PASSWORD), said
    if password != PASSWORD:
        assert f"could not log in with {mechanism}" in said.out + said.err
