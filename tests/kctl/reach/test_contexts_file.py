"""The file of contexts, and which of flags, environment and contexts wins."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from kctl.errors import Exit, KctlError
from kctl.reach import contexts_file
from kctl.reach.access import Access, Secret, resolve
from kctl.reach.contexts_file import Contexts, path, read, update, write
from tests.kctl.reach.test_access import GivenSettings

PROD = {
    "bootstrap": ["kafka-1:9093", "kafka-2:9093"],
    "security_protocol": "SASL_SSL",
    "mechanism": "SCRAM-SHA-512",
    "username": "alice",
    "password_command": "echo sesame",
    "protected": True,
    "properties": {"ssl.cipher.suites": "x"},
}
DEV = {"bootstrap": "dev"}
TWO = Contexts("prod", {"prod": PROD, "dev": DEV})


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "contexts.yaml"
    write(str(file), TWO)
    return {"KCTL_CONFIG": str(file)}


def test_where_it_is() -> None:
    assert path({"KCTL_CONFIG": "/a/b"}) == "/a/b"
    assert path({"XDG_CONFIG_HOME": "/x"}) == "/x/kctl/contexts.yaml"
    assert path({}).endswith("/.config/kctl/contexts.yaml")


def test_written_and_read(tmp_path: Path) -> None:
    file = tmp_path / "new" / "contexts.yaml"
    assert read(str(file)) == Contexts()
    write(str(file), TWO)
    assert read(str(file)) == TWO
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o077 == 0
    assert [found.name for found in file.parent.iterdir()] == ["contexts.yaml"]


def test_a_change_waits_for_another_and_keeps_what_that_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "new" / "contexts.yaml"

    def flock(fd: int, how: int) -> None:
        """Whoever had the lock writes before it lets go."""
        assert (how, os.fstat(fd).st_ino) == (fcntl.LOCK_EX | fcntl.LOCK_NB, file.parent.stat().st_ino)
        write(str(file), Contexts().with_context("prod", PROD))

    monkeypatch.setattr(fcntl, "flock", flock)
    before, after = update(str(file), lambda contexts: contexts.with_context("dev", DEV))
    assert (before, after) == (Contexts("prod", {"prod": PROD}), TWO)
    assert read(str(file)) == TWO
    assert [found.name for found in file.parent.iterdir()] == ["contexts.yaml"]


def test_a_disk_that_is_full_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "contexts.yaml"
    write(str(file), Contexts().with_context("prod", PROD))

    def full(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        update(str(file), lambda contexts: contexts.with_context("dev", DEV))
    assert list(tmp_path.iterdir()) == [file]
    assert list(read(str(file)).contexts) == ["prod"]


def test_a_directory_that_somebody_keeps_locked_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts_file, "_PATIENCE_S", 0.0)
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with pytest.raises(KctlError, match=f"another process has locked {tmp_path}, and nothing was changed"):
            update(str(tmp_path / "contexts.yaml"), lambda contexts: contexts)
    finally:
        os.close(fd)
    assert not list(tmp_path.iterdir())


def test_nobody_else_changes_the_file_amid_a_change_that_fails(tmp_path: Path) -> None:
    file = tmp_path / "contexts.yaml"

    def lock() -> None:
        fd = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(fd)

    def change(contexts: Contexts) -> Contexts:
        with pytest.raises(BlockingIOError):
            lock()
        raise KctlError("it cannot be made")

    with pytest.raises(KctlError, match="it cannot be made"):
        update(str(file), change)
    lock()
    assert not file.exists()


def test_file_behind_a_link_stays_behind_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "contexts.yaml"
    link.symlink_to(tmp_path / "real" / "contexts.yaml")
    write(str(link), TWO)
    assert link.is_symlink()
    assert read(str(link)) == TWO


def test_file_that_others_may_read(tmp_path: Path) -> None:
    file = tmp_path / "contexts.yaml"
    write(str(file), TWO)
    file.chmod(0o640)
    with pytest.raises(KctlError, match=r"can be read by others \(mode 0640\)") as error:
        read(str(file))
    assert error.value.exit_code is Exit.REFUSED
    assert error.value.hints == (f"chmod 600 {file}",)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: [", "contexts.yaml is not YAML: line "),
        ("- a", "it is not `current: NAME`"),
        ("contexts: [a]", "it is not `current: NAME`"),
        ("contexts: {a: b}", "it is not `current: NAME`"),
        ("contexts: {../a: {}}", '"../a" is not a valid context name'),
    ],
)
def test_file_that_is_something_else(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "contexts.yaml"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(KctlError) as error:
        read(str(file))
    assert error.value.exit_code is Exit.USAGE
    assert what in error.value.what


def test_first_context_becomes_the_current_one() -> None:
    one = Contexts().with_context("dev", DEV)
    assert one == Contexts("dev", {"dev": DEV})
    assert one.with_context("prod", PROD).current == "dev"
    assert one.without("dev") == Contexts()


def test_current_context(environment: dict[str, str]) -> None:
    access = resolve(GivenSettings(), environment)
    assert access == Access(
        bootstrap=(("kafka-1", 9093), ("kafka-2", 9093)),
        security_protocol="SASL_SSL",
        mechanism="SCRAM-SHA-512",
        username="alice",
        password=Secret(command="echo sesame"),
        context="prod",
        protected=True,
    )
    assert access.password() == "sesame"


KAFKA_1 = (("kafka-1", 9093), ("kafka-2", 9093))
OTHER = (("other", 9092),)
DEFAULT = (("localhost", 9092),)


@pytest.mark.parametrize(
    ("asked", "variables", "context", "bootstrap", "username"),
    [
        (GivenSettings(), {}, "prod", KAFKA_1, "alice"),
        (GivenSettings("dev"), {}, "dev", (("dev", 9092),), ""),
        (GivenSettings("prod"), {"KCTL_CONTEXT": "dev"}, "prod", KAFKA_1, "alice"),
        (GivenSettings(), {"KCTL_CONTEXT": "dev"}, "dev", (("dev", 9092),), ""),
        # An address without a name: not the current context, whose password is none of its business.
        (GivenSettings(bootstrap="other"), {}, "", OTHER, ""),
        (GivenSettings(), {"KCTL_BOOTSTRAP": "other"}, "", OTHER, ""),
        # A flag is nearer than a variable.
        (GivenSettings(bootstrap="other"), {"KCTL_CONTEXT": "prod"}, "", OTHER, ""),
        (GivenSettings(extra={"bootstrap.servers": "other"}), {"KCTL_CONTEXT": "prod"}, "", OTHER, ""),
        (GivenSettings(bootstrap="other"), {"KCTL_CONTEXT": "prod", "KCTL_BOOTSTRAP": "more"}, "", OTHER, ""),
        (GivenSettings(bootstrap="other"), {"KCTL_CONTEXT": "prod", "KCTL_USERNAME": "bob"}, "", OTHER, "bob"),
        (GivenSettings(bootstrap="other"), {"KCTL_CONTEXT": "zzz"}, "", OTHER, ""),
        (GivenSettings("dev", "other"), {"KCTL_CONTEXT": "prod"}, "dev", OTHER, ""),
        (GivenSettings("prod", "other"), {"KCTL_CONTEXT": "dev"}, "prod", OTHER, "alice"),
        (GivenSettings("prod"), {"KCTL_CONTEXT": "dev", "KCTL_BOOTSTRAP": "other"}, "prod", KAFKA_1, "alice"),
        (GivenSettings(extra={"sasl.username": "carol"}), {"KCTL_CONTEXT": "prod"}, "prod", KAFKA_1, "carol"),
        # Both: the context, at another address.
        (GivenSettings("prod", "other"), {}, "prod", OTHER, "alice"),
        (GivenSettings(), {"KCTL_CONTEXT": "prod", "KCTL_BOOTSTRAP": "other"}, "prod", OTHER, "alice"),
        # A context named as a flag is not sent elsewhere by the environment; the rest of the environment counts.
        (GivenSettings("prod"), {"KCTL_BOOTSTRAP": "other", "KCTL_USERNAME": "bob"}, "prod", KAFKA_1, "bob"),
        (GivenSettings(extra={"sasl.username": "carol"}), {"KCTL_USERNAME": "bob"}, "prod", KAFKA_1, "carol"),
        (GivenSettings(extra={"bootstrap.servers": "other"}), {}, "", OTHER, ""),
        (GivenSettings(bootstrap="other", extra={"bootstrap.servers": "more"}), {}, "", OTHER, ""),
        (GivenSettings(), {"KCTL_CONFIG": "/nowhere/at/all"}, "", DEFAULT, ""),
    ],
)
def test_who_wins(
    environment: dict[str, str],
    asked: GivenSettings,
    variables: dict[str, str],
    context: str,
    bootstrap: Any,
    username: str,
) -> None:
    access = resolve(asked, environment | variables)
    assert (access.context, access.bootstrap, access.username) == (context, bootstrap, username)


def test_settings_of_a_kafka_client(environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=other\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\ngroup.id=x\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '  username="bob" password="builder";\n'
    )
    access = resolve(GivenSettings(command_config=str(file), extra={"sasl.username": "carol"}), environment)
    assert (access.bootstrap, access.username, access.password()) == (OTHER, "carol", "builder")
    elsewhere = tmp_path / "elsewhere.properties"
    elsewhere.write_text("bootstrap.servers=other\n")
    for asked in (GivenSettings(command_config=str(elsewhere)), GivenSettings("prod", command_config=str(elsewhere))):
        access = resolve(asked, environment | {"KCTL_CONTEXT": "prod"})
        assert (access.context, access.bootstrap) == (asked.context, OTHER)


@pytest.mark.parametrize(
    ("asked", "variables", "hint"),
    [
        (GivenSettings("prd"), {}, 'did you mean "prod"?'),
        (GivenSettings(), {"KCTL_CONTEXT": "zzz"}, "there are: prod, dev"),
        (GivenSettings("prod"), {"KCTL_CONFIG": "/nowhere/at/all"}, "there are: none"),
    ],
)
def test_context_that_is_not_there(
    environment: dict[str, str], asked: GivenSettings, variables: dict[str, str], hint: str
) -> None:
    with pytest.raises(KctlError, match="there is no context") as error:
        resolve(asked, environment | variables)
    assert error.value.exit_code is Exit.NOT_FOUND
    assert error.value.hints == (hint,)


def test_field_that_no_context_has(environment: dict[str, str]) -> None:
    write(environment["KCTL_CONFIG"], Contexts("a", {"a": {"bootstraps": "x"}}))
    with pytest.raises(KctlError, match='contexts have no field "bootstraps"') as error:
        resolve(GivenSettings(), environment)
    assert error.value.hints[0].startswith('did you mean "bootstrap"')
