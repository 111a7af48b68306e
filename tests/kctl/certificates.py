"""A CA of the tests' own, by the openssl command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

_SETTINGS = """
[ca]
default_ca=here
[here]
database={0}/issued.txt
new_certs_dir={0}
default_md=sha256
policy=any
rand_serial=yes
unique_subject=no
[any]
commonName=supplied
"""
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


class Identity(NamedTuple):
    certificate: Path
    key: Path


class Authority:
    """Issues certificates into a directory."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        self.directory = directory
        self.certificate = directory / "ca.pem"
        self._key = directory / "ca.key"
        (directory / "issued.txt").touch()
        (directory / "ca.cnf").write_text(_SETTINGS.format(directory))
        files = ["-keyout", str(self._key), "-out", str(self.certificate)]
        openssl("req", "-x509", *_NEW_KEY, "-nodes", *files, "-subj", "/CN=kctl tests", "-days", "3650")

    def issue(
        self,
        name: str,
        alternatives: str = "DNS:localhost,IP:127.0.0.1",
        *,
        begin: str = "20200101000000Z",
        end: str = "20450101000000Z",
        password: str = "",
    ) -> Identity:
        certificate, key, request, extensions = (
            self.directory / f"{name}.{ending}" for ending in ("pem", "key", "csr", "ext")
        )
        extensions.write_text(f"subjectAltName={alternatives}\n")
        protection = ["-passout", f"pass:{password}"] if password else ["-nodes"]
        files = ["-keyout", str(key), "-out", str(request)]
        openssl("req", "-new", *_NEW_KEY, *protection, *files, "-subj", f"/CN={name}")
        signer = ["-cert", str(self.certificate), "-keyfile", str(self._key)]
        files = ["-in", str(request), "-out", str(certificate), "-extfile", str(extensions)]
        times = ["-startdate", begin, "-enddate", end]
        openssl("ca", "-batch", "-notext", "-config", str(self.directory / "ca.cnf"), *signer, *files, *times)
        return Identity(certificate, key)

    def pkcs12(self, name: str, password: str, identity: Identity) -> Path:
        """Key and certificates in one file, as Java keeps them."""
        path = self.directory / f"{name}.p12"
        files = ["-in", str(identity.certificate), "-inkey", str(identity.key), "-certfile", str(self.certificate)]
        openssl("pkcs12", "-export", *files, "-out", str(path), "-passout", f"pass:{password}")
        return path

    def pkcs12_of_ca(self, password: str) -> Path:
        path = self.directory / "trust.p12"
        files = ["-in", str(self.certificate), "-out", str(path)]
        openssl("pkcs12", "-export", "-nokeys", *files, "-passout", f"pass:{password}")
        return path


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))
