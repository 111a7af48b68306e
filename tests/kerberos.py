"""A KDC of its own on this machine, for tests of Kerberos."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.oracle.kafka import free_port, wait_port

REALM = "KAFKAD.TEST"
SERVICE = f"kafka/localhost@{REALM}"
_SECONDS = 20
_SBIN = "/usr/sbin:/usr/bin:/sbin:/bin"

_CLIENTS = """[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
"""
_OLD_KEYS = """[libdefaults]
 allow_rc4 = true
 allow_weak_crypto = true
 permitted_enctypes = {encryption} aes256-cts
 default_tkt_enctypes = {encryption}
 default_tgs_enctypes = {encryption}
"""
_SERVER = """[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {directory}/principals
  key_stash_file = {directory}/stash
  acl_file = {directory}/acl
  max_life = 1h
 }}
"""


def missing() -> str | None:
    """What Kerberos cannot be tried without, and is not here."""
    if find_spec("gssapi") is None:
        return "the extra kerberos is not installed: pip install '.[kerberos]', which needs libkrb5-dev"
    for program in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit"):
        if shutil.which(program, path=_SBIN) is None:
            return f"there is no {program}: apt-get install krb5-kdc krb5-admin-server krb5-user"
    if not any(Path("/usr/lib").glob("**/sasl2/libgssapiv2.so*")):
        return "Cyrus SASL, which kcat uses, knows no Kerberos: apt-get install libsasl2-modules-gssapi-mit"
    return None


class Kdc:
    """A context manager; `environment` is what clients and brokers need to know of it."""

    def __init__(self, directory: Path, encryption: str = "") -> None:
        """`encryption`: the only kind of all keys, which may be one that is off by default."""
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._port = free_port()
        for name, text in (("krb5.conf", _CLIENTS), ("kdc.conf", _SERVER)):
            made = text.format(realm=REALM, port=self._port, directory=directory)
            if encryption:
                made = made.replace("[libdefaults]\n", _OLD_KEYS.format(encryption=encryption))
                made = made.replace("  max_life", f"  supported_enctypes = {encryption}:normal\n  max_life")
            (directory / name).write_text(made)
        self.config = directory / "krb5.conf"
        self.environment: Mapping[str, str] = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
        }

    def keytab(self, *principals: str) -> Path:
        """Makes them, and their keys."""
        path = self._directory / f"{principals[0].replace('/', '_')}.keytab"
        for principal in principals:
            self._run("kadmin.local", "-q", f"addprinc -randkey {principal}")
            self._run("kadmin.local", "-q", f"ktadd -k {path} {principal}")
        return path

    def new_keys(self, keytab: Path, principal: str) -> None:
        """In the place of those that were there."""
        keytab.unlink()
        self._run("kadmin.local", "-q", f"ktadd -k {keytab} {principal}")

    def ticket(self, principal: str, keytab: Path) -> Path:
        """The file of a cache."""
        path = self._directory / f"{principal.replace('/', '_')}.cache"
        self._run("kinit", "-k", "-t", str(keytab), "-c", f"FILE:{path}", principal)
        return path

    def _run(self, *command: str) -> None:
        environment = {**os.environ, **self.environment, "PATH": _SBIN}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS)
        assert done.returncode == 0, done.stderr

    def __enter__(self) -> Self:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        environment = {**os.environ, **self.environment, "PATH": _SBIN}
        log = self._directory / "kdc.log"
        with log.open("w+b") as output:
            self._process = subprocess.Popen(["krb5kdc", "-n"], env=environment, stdout=output, stderr=output)
            wait_port(self._port, self._process, output)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(_SECONDS)
