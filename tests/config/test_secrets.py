"""Settings that name secrets: where these are looked for, who else may read them, and that nothing shows them."""

import os
from pathlib import Path

import pytest

from kafkad.config import Config, ConfigError, Source, load
from kafkad.config.describe import describe_broker
from kafkad.config.secrets import Secrets
from kafkad.config.setting import password
from kafkad.config.values import parse

SECRET = "s3cr3t-of-nobody"
RACK = "broker.rack"
"""A setting of text that is not a password: secrets may stand in any."""


def secret_file(tmp_path: Path, name: str, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / name
    path.write_text(text)
    path.chmod(mode)
    return path


def rack(text: str, environ: dict[str, str] | None = None, *others: str) -> object:
    return load(None, [f"{RACK}={text}", *others], environ or {}).value(RACK)


def problem(text: str, environ: dict[str, str] | None = None, *others: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(None, [f"{RACK}={text}", *others], environ or {})
    (found,) = caught.value.problems
    return found


def test_a_key_of_a_properties_file(tmp_path: Path) -> None:
    path = secret_file(tmp_path, "secrets.properties", f"# ours\nother = 1\nkey = {SECRET}\n")
    assert rack(f"${{file:{path}:key}}") == SECRET
    assert problem(f"${{file:{path}:nokey}}") == f"--set {RACK}: {RACK}: ${{file:{path}:nokey}}: {path} has no nokey"
    assert problem("${file:/nowhere/x:key}").endswith("/nowhere/x: No such file or directory")
    assert "expected ${file:PATH:KEY}" in problem("${file:key}")


def test_a_file_of_a_directory_without_the_end_of_its_line(tmp_path: Path) -> None:
    secret_file(tmp_path, "password", f" {SECRET}\n")
    assert rack(f"<${{directory:{tmp_path}:password}}>") == f"< {SECRET}>"
    assert "in this directory itself" in problem(f"${{directory:{tmp_path}:../password}}")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in (f"file:{tmp_path}/pipe:key", f"directory:{tmp_path}:pipe"):
        assert problem(f"${{{name}}}").endswith(f"${{{name}}}: {tmp_path}/pipe is no regular file")


def test_a_variable_of_the_environment() -> None:
    assert rack("${env:KEY}", {"KEY": SECRET}) == SECRET
    assert problem("${env:KEY}").endswith("${env:KEY}: the environment has no variable KEY")


def test_a_credential_of_systemd(tmp_path: Path) -> None:
    secret_file(tmp_path, "keystore", f"{SECRET}\n", 0o440)  # as systemd makes them
    config = load(None, [f"{RACK}=${{credential:keystore}}"], {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert config.value(RACK) == SECRET
    assert config.warnings == ()
    assert "does the unit have LoadCredential?" in problem("${credential:keystore}")
    assert "expected ${credential:NAME}" in problem("${credential:../x}", {"CREDENTIALS_DIRECTORY": str(tmp_path)})


def test_several_in_the_middle_of_a_value_and_none() -> None:
    assert rack('user_a="${env:A}" user_b="${env:B}";', {"A": "1", "B": "2"}) == 'user_a="1" user_b="2";'
    assert rack("$1 and $x and ${}") == "$1 and $x and ${}"


def test_a_provider_that_is_not_there() -> None:
    assert problem("${vault:a:b}").endswith(
        "${vault:a:b}: there is no provider of secrets named 'vault', only file, directory, env, credential"
    )


JAVA = "org.apache.kafka.common.config.provider."


def test_kafkas_providers_under_names_of_ones_own(tmp_path: Path) -> None:
    path = secret_file(tmp_path, "x", f"key={SECRET}")
    file = f"""\
config.providers=mine,ours
config.providers.mine.class={JAVA}FileConfigProvider
config.providers.mine.param.allowed.paths=/etc,{tmp_path}
config.providers.ours.class={JAVA}EnvVarConfigProvider
config.providers.ours.param.allowlist.pattern=KAFKA_.*
"""
    properties = secret_file(tmp_path, "server.properties", f"{file}{RACK}=${{mine:{path}:key}}${{ours:KAFKA_X}}\n")
    config = load(str(properties), [], {"KAFKA_X": "!"})
    assert config.value(RACK) == f"{SECRET}!"
    assert config.warnings == ()
    with pytest.raises(ConfigError, match=r"/tmp/../usr/x is outside of allowed\.paths"):
        load(str(properties), [f"{RACK}=${{mine:/tmp/../usr/x:key}}"], {})
    with pytest.raises(ConfigError, match=r"HOME does not match allowlist\.pattern"):
        load(str(properties), [f"{RACK}=${{ours:HOME}}"], {"HOME": "/"})


def test_providers_that_cannot_be() -> None:
    only = "FileConfigProvider, DirectoryConfigProvider, EnvVarConfigProvider"
    assert f"has to be one of {only}" in problem("x", {}, "config.providers=v", "config.providers.v.class=Vault")
    assert "config.providers.v.class belongs to no provider" in problem("x", {}, "config.providers.v.class=Vault")
    env = ["config.providers=e", f"config.providers.e.class={JAVA}EnvVarConfigProvider"]
    assert "'(' is not a pattern" in problem("x", {}, *env, "config.providers.e.param.allowlist.pattern=(")


def test_a_file_that_others_may_read_is_a_warning_or_an_error(tmp_path: Path) -> None:
    path = secret_file(tmp_path, "x", f"key={SECRET}", 0o640)
    text = f"{path} holds secrets, and group or others may read it: chmod 600 {path}"
    assert load(None, [f"{RACK}=${{file:{path}:key}}"], {}).warnings == (text,)
    assert problem(f"${{file:{path}:key}}", {}, "kafkad.strict.permissions=true") == text


@pytest.mark.parametrize("name", ["ssl.keystore.location", "listener.name.l.ssl.keystore.location"])
def test_a_key_that_others_may_read_is_a_warning_or_an_error(tmp_path: Path, name: str) -> None:
    path = secret_file(tmp_path, "broker.pem", "a key", 0o644)
    text = f"{path} holds secrets, and group or others may read it: chmod 600 {path}"
    assert text in load(None, [f"{name}={path}"], {}).warnings
    with pytest.raises(ConfigError) as caught:
        load(None, [f"{name}={path}", "kafkad.strict.permissions=true"], {})
    assert text in caught.value.problems
    path.chmod(0o600)
    assert text not in load(None, [f"{name}={path}", "kafkad.strict.permissions=true"], {}).warnings


def test_a_configuration_with_passwords_in_it_should_not_be_for_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = password("some.password", None, "low", "For this test.")
    monkeypatch.setitem(__import__("kafkad.config.tables", fromlist=["x"]).BROKER_SETTINGS, setting.name, setting)
    path = secret_file(tmp_path, "kafkad.yaml", f"some.password: {SECRET}\n", 0o644)
    (warning,) = load(str(path), [], {}).warnings
    assert warning.startswith(f"{path} holds secrets")
    path.write_text("some.password: ${env:P}\n")
    assert load(str(path), [], {"P": SECRET}).warnings == ()


@pytest.mark.parametrize(
    "setting",
    ["super.users: User:admin", 'allow.everyone.if.no.acl.found: "true"', "ssl.truststore.certificates: of everybody"],
)
def test_what_is_no_secret_may_be_read_by_everybody(tmp_path: Path, setting: str) -> None:
    authorizer = "authorizer.class.name: kafka.security.authorizer.AclAuthorizer"
    path = secret_file(tmp_path, "kafkad.yaml", f"{authorizer}\n{setting}\n", 0o644)
    assert [warning for warning in load(str(path), [], {}).warnings if "holds secrets" in warning] == []


def test_secrets_are_read_again_with_the_file(tmp_path: Path) -> None:
    path = secret_file(tmp_path, "level", "debug\n")
    setting = f"kafkad.log.level=${{directory:{tmp_path}:level}}"
    config = load(None, [setting], {})
    path.write_text("error\n")
    reload = config.with_file(load(None, [setting], {}))
    assert reload.changed == ("kafkad.log.level",)
    assert reload.config.str("kafkad.log.level") == "error"


def test_a_value_that_is_refused_is_not_shown() -> None:
    wrong = load_error("num.partitions=${env:P}", {"P": SECRET})
    assert wrong == "--set num.partitions: num.partitions cannot be what ${env:P} gives"
    checked = password("x", None, "low", "For this test.", valid=lambda value: "is too weak")
    with pytest.raises(ValueError, match=r"^Invalid value \[hidden\] for configuration x: is too weak$"):
        parse(checked, SECRET)


def load_error(setting: str, environ: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        load(None, [setting], environ)
    return str(caught.value)


@pytest.mark.parametrize("end", ["", "=="])
def test_a_value_behind_a_wrong_sign_or_without_a_name_is_not_shown(end: str) -> None:
    for sign in (":", " ", ": "):
        wrong = load_error(f"ssl.key.password{sign}{SECRET}{end}", {})
        assert wrong == "--set ssl.key.password: expected NAME=VALUE"
        assert SECRET not in load_error(f"{sign}{SECRET}{end}", {})
    assert SECRET not in load_error(f"{SECRET}{end}", {})


def test_names_that_are_no_settings_are_described_without_their_values(tmp_path: Path) -> None:
    path = secret_file(tmp_path, "server.properties", f"broker.id=1\nvendor.password={SECRET}\n")
    config: Config = load(str(path), [], {})
    for each in (config, config.with_overrides(cluster_wide={}, per_broker={}), config.with_file(config).config):
        row = list(describe_broker(each))[-1]
        assert (row.name, row.value, row.sensitive, row.read_only) == ("vendor.password", None, True, True)
        assert [tuple(synonym) for synonym in row.synonyms] == [("vendor.password", None, Source.STATIC_BROKER_CONFIG)]
        assert SECRET not in repr(list(describe_broker(each)))


def test_only_files_that_were_read_are_looked_at(tmp_path: Path) -> None:
    secrets = Secrets(os.environ)
    assert secrets.resolve("nothing") == "nothing"
    assert secrets.loose == {}
