"""Files of settings in which a secret has come to stand elsewhere: it is not repeated in what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkad.config import ConfigError, load

SASL = "listeners: SASL_SSL://127.0.0.1:9092\ninter.broker.listener.name: SASL_SSL\n"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def told(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    try:
        config = load(str(path), [], {})
    except ConfigError as error:
        return "\n".join(error.problems)
    return "\n".join(config.warnings)


@pytest.mark.parametrize(
    "lines",
    [
        f'sasl.enabled.mechanisms: PLAIN\n  listener.name.sasl_ssl.plain.sasl.jaas.config {MODULE} user_a="hunter2";\n',
        "sasl.enabled.mechanisms:\n- PLAIN\n  ssl.keystore.password hunter2\n",
        "sasl.enabled.mechanisms:\n- PLAIN\n  ssl.keystore.passwort hunter2\n",
        "sasl.enabled.mechanisms: [PLAIN\n  ssl.keystore.passwort hunter2]\n",
        "sasl.enabled.mechanisms: PLAIN,ssl.keystore.password=hunter2\n",
        "num.partitions: 3\n  ssl.keystore.passwort hunter2\n",
        "super.users: User:a;kafkad.http.token hunter2\n",
    ],
)
def test_a_line_that_has_become_a_part_of_the_one_before(tmp_path: Path, lines: str) -> None:
    answer = told(tmp_path / "kafkad.yaml", SASL + lines)
    assert "kafkad.yaml:3: " in answer
    assert "has swallowed" in answer
    assert "hunter2" not in answer


def test_a_line_of_properties_behind_a_backslash(tmp_path: Path) -> None:
    answer = told(tmp_path / "server.properties", "log.cleanup.policy=delete,\\\nssl.keystore.password=hunter2\n")
    assert "server.properties:1: log.cleanup.policy has swallowed ssl.keystore.password" in answer
    assert "hunter2" not in answer


def test_a_line_of_a_key_that_has_lost_its_backslash(tmp_path: Path) -> None:
    """What stands where names stand is shown only if it looks like one."""
    key = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7"
    for name in ("server.properties", "kafkad.yaml"):
        end = ": x\n" if name.endswith("yaml") else "\n"
        answer = told(tmp_path / name, f"{key}{end}")
        assert f"{name}:1: " in answer
        assert key not in answer
    assert "kafkad.yaml:1: log.retention.ours is not a setting; did you mean log.retention.hours?" in told(
        tmp_path / "kafkad.yaml", "log.retention.ours: 3\n"
    )


def test_values_of_several_lines_that_are_meant(tmp_path: Path) -> None:
    users = f'listener.name.sasl_ssl.plain.sasl.jaas.config: {MODULE}\n  user_a="1";\n'
    lists = "ssl.enabled.protocols: [TLSv1.2,\n  TLSv1.3]\nsuper.users: >-\n  User:a;\n  User:b\n"
    answer = told(tmp_path / "kafkad.yaml", SASL + users + lists)
    assert "swallowed" not in answer
