"""`listeners` and what goes with it."""

import pytest

from kafkad.config import ConfigError, load
from kafkad.model import Endpoint

MAP = "listener.security.protocol.map"


def test_several_listeners_with_names_addresses_and_ports() -> None:
    config = load(
        None,
        [
            "listeners=internal://[::1]:9092,EXTERNAL://127.0.0.1:0, PLAINTEXT://:9094",
            "listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "advertised.listeners=EXTERNAL://kafka.example.com:19092,INTERNAL://[fe80::1]:9092",
            "inter.broker.listener.name=internal",
        ],
        {},
    )
    assert config.listeners == (
        Endpoint(listener="INTERNAL", host="::1", port=9092),
        Endpoint(listener="EXTERNAL", host="127.0.0.1", port=0),
        Endpoint(listener="PLAINTEXT", host="", port=9094),
    )
    assert config.advertised_listeners == (
        Endpoint(listener="EXTERNAL", host="kafka.example.com", port=19092),
        Endpoint(listener="INTERNAL", host="fe80::1", port=9092),
    )
    assert config.inter_broker_listener == "INTERNAL"


def test_every_interface_is_advertised_by_this_hosts_name() -> None:
    (endpoint,) = load(None, ["listeners=PLAINTEXT://:9092"], {}).advertised_listeners
    assert endpoint.host
    assert endpoint.port == 9092


def test_the_inter_broker_listener_is_the_first_of_its_protocol() -> None:
    options = ["listeners=A://:1,PLAINTEXT://:2", "listener.security.protocol.map=A:PLAINTEXT,PLAINTEXT:PLAINTEXT"]
    assert load(None, options, {}).inter_broker_listener == "PLAINTEXT"
    assert (
        load(None, ["listeners=A://:1", "listener.security.protocol.map=A:PLAINTEXT"], {}).inter_broker_listener == "A"
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["listeners=PLAINTEXT"], "'PLAINTEXT' is not a listener; expected NAME://host:port"),
        (["listeners=,"], "at least one listener is needed"),
        (["listeners=X://:9092"], "No security protocol defined for listener X"),
        (["listeners=PLAINTEXT://:99999"], "has a port above 65535"),
        (["listeners=PLAINTEXT://:1,PLAINTEXT://:2"], "Each listener must have a different name"),
        (["listeners=PLAINTEXT://h:1,X://h:1", f"{MAP}=PLAINTEXT:PLAINTEXT,X:PLAINTEXT"], "PLAINTEXT and X have"),
        (["listener.security.protocol.map=X:Y"], "'X:Y' is not NAME:PROTOCOL"),
        (["listeners=SSL://:9093"], "listener SSL needs a key: set ssl.keystore.location, or listener.name.ssl.ssl."),
        (["listeners=PLAINTEXT://h:9092", "http.listener=https://:9404"], "http.listener: https needs ssl.keystore"),
        (
            ["listeners=SSL://:9093", "ssl.keystore.location=/keys.pem", "ssl.keystore.key=PEM"],
            "listener SSL has ssl.keystore.location and ssl.keystore.key",
        ),
        (["listeners=PLAINTEXT://0.0.0.0:9092"], "cannot use the nonroutable meta-address 0.0.0.0"),
        (["advertised.listeners=X"], "advertised.listeners=X: 'X' is not a listener"),
        (["advertised.listeners=SSL://h:1"], "advertised.listeners has SSL, which listeners does not have"),
        (["inter.broker.listener.name=OTHER"], "inter-broker listener OTHER is not in advertised.listeners"),
        (["inter.broker.listener.name=X", "security.inter.broker.protocol=PLAINTEXT"], "only one of"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_listeners(options: list[str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, options, {})
    assert problem in caught.value.problems[0]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9404", ("127.0.0.1", 9404)),
        ("http://[::1]:9404/", ("::1", 9404)),
        (":0", ("", 0)),
        ("", None),
    ],
)
def test_the_http_listener(text: str, address: tuple[str, int] | None) -> None:
    assert load(None, [f"http.listener={text}"], {}).http_listener == address


def test_an_http_listener_needs_a_port() -> None:
    with pytest.raises(ConfigError, match="'localhost' is not host:port"):
        load(None, ["http.listener=localhost"], {})


def test_connections_per_host() -> None:
    config = load(None, ["max.connections.per.ip.overrides=localhost:5, [::1]:7,10.0.0.1:0"], {})
    assert config.max_connections_per_ip_overrides() == {"localhost": 5, "::1": 7, "10.0.0.1": 0}
