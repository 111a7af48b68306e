"""Commands that kctl prints for a person to paste."""

from __future__ import annotations

import subprocess

import pytest

from kctl.cli import COMMANDS
from kctl.errors import KctlError
from kctl.settings import Settings
from kctl.texts.spelling import ON_A_CLUSTER, command, hints_for, hints_of, on_this_cluster, quote, spelled


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({}, ""),
        ({"context": "prod"}, " -c prod"),
        ({"bootstrap": "a:1,b:2"}, " -b a:1,b:2"),
        ({"command_config": "my files/x.properties"}, " --command-config 'my files/x.properties'"),
        ({"extra": {"bootstrap.servers": "a:1", "sasl.jaas.config": "secret"}}, " -X bootstrap.servers=a:1"),
    ],
)
def test_a_command_goes_to_the_cluster_of_this_one(given: dict[str, object], where: str) -> None:
    settings = Settings()
    for name, value in given.items():
        setattr(settings, name, value)
    assert spelled(settings, "topics delete t") == f"kctl{where} topics delete t"
    assert spelled(settings, "acls list", "acls add") == f"kctl{where} acls list; kctl{where} acls add"
    assert spelled(settings) == ""


@pytest.mark.parametrize(
    ("names", "options", "told"),
    [
        (("orders",), "", "groups lag orders"),
        (("orders", "two words"), "--all", "groups lag orders 'two words' --all"),
        (("orders", "-g2"), "--all", "groups lag --all -- orders -g2"),
        (("--all",), "", "groups lag -- --all"),
        (("-\n",), "", "groups lag -- $'-\\x0a'"),
        ((), "--all", "groups lag --all"),
    ],
)
def test_names_that_begin_with_a_dash_are_no_options(names: tuple[str, ...], options: str, told: str) -> None:
    assert command("groups lag", *names, options=options) == told


@pytest.fixture
def prod() -> Settings:
    settings = Settings()
    settings.context = "prod"
    return settings


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        (
            "kctl groups members g; kctl: it; see kctl topics list",
            "kctl -c prod groups members g; kctl: it; see kctl -c prod topics list",
        ),
        (
            "kctl configs set of the brokers' topic, kctl raw of a group's",
            "kctl -c prod configs set of the brokers' topic, kctl -c prod raw of a group's",
        ),
        ("kctl topics list, or kctl topics alter --help", "kctl -c prod topics list, or kctl topics alter --help"),
        ("kctl partitions apply 'my kctl topics/x'", "kctl -c prod partitions apply 'my kctl topics/x'"),
        ('did you mean "kctl topics"?', 'did you mean "kctl topics"?'),
        ("test it: kctl contexts test", "test it: kctl -c prod contexts test"),
    ],
)
def test_the_commands_of_hints_go_to_the_cluster_of_this_one(prod: Settings, hint: str, told: str) -> None:
    assert on_this_cluster(prod, hint) == told


@pytest.mark.parametrize(
    "hint",
    [
        "kctl topics --help lists what is available",
        "kctl contexts use NAME",
        "kctl dump-segment FILE",
        "see kctl there",
    ],
)
def test_what_reaches_no_cluster_is_not_told_which(prod: Settings, hint: str) -> None:
    assert on_this_cluster(prod, hint) == hint


def test_the_commands_that_reach_a_cluster_are_commands() -> None:
    assert {command.split()[0] for command in ON_A_CLUSTER} <= COMMANDS.keys()
    assert COMMANDS.keys() - set(ON_A_CLUSTER) == {
        *("etl", "dump-segment", "dump-index", "check-log", "contexts", "completion", "version", "help")
    }


@pytest.mark.parametrize("inner", ["", "staging"])
def test_hints_are_for_the_cluster_that_an_error_comes_from(prod: Settings, inner: str) -> None:
    here = Settings()
    here.context = inner
    with pytest.raises(KctlError) as raised, hints_for(prod), hints_for(here):
        raise KctlError("no", hints=("kctl topics list",))
    assert hints_of(prod, raised.value) == (spelled(here, "topics list"),)
    assert hints_of(prod, raised.value.with_hint("and more")) == (spelled(here, "topics list"), "and more")


@pytest.mark.parametrize(
    "name",
    ["", "plain", "two words", "it's", "evil\x1b[2Jgone", "two\nlines", "it's\\n\n", "zwölf\x85\n", "$(id)\n`id`"],
)
def test_a_name_of_whatever_signs_is_one_word_for_a_shell(name: str) -> None:
    assert quote(name).isprintable()
    said = subprocess.run(["bash", "-c", f"printf %s {quote(name)}"], capture_output=True, check=True).stdout
    assert said.decode() == name
