"""Certificates and keys, as the files of Kafka's clients have them: PEM, and PKCS12 by way of openssl."""

from __future__ import annotations

import os.path
from functools import lru_cache
from typing import TYPE_CHECKING

from kctl.errors import Exit, KctlError
from kctl.reach.access import Access, Secret
from kctl.texts.text_files import content_of, text_of

if TYPE_CHECKING:
    import ssl

_PEM_BEGIN = "-----BEGIN "
_KINDS = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS", b"\x30": "PKCS12"}
"""Kinds of key stores, by the first bytes of the file."""


@lru_cache
def tls_context(access: Access) -> ssl.SSLContext:
    """One for all connections of a run: reading the stores may take an openssl, and a question for a password."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = access.check_hostname
    if access.ca:
        _trust(context, access)
    else:
        context.load_default_certs()
    if access.certificate:
        _identify(context, access)
    return context


def kind_of(store: str) -> str:
    """PEM or PKCS12; `store` is a file, or PEM itself. KctlError for what kctl cannot read, with the way out."""
    if store.lstrip().startswith(_PEM_BEGIN):
        return "PEM"
    data = content_of(_path(store))
    if _PEM_BEGIN.encode() in data:
        return "PEM"
    kind = next((kind for start, kind in _KINDS.items() if data.startswith(start)), None)
    if kind == "PKCS12":
        return kind
    if kind is None:
        raise KctlError(f"{store} is neither PEM nor PKCS12", exit_code=Exit.USAGE)
    target = os.path.splitext(store)[0] + ".p12"
    raise KctlError(
        f"{store} is a {kind} store, which only Java reads",
        exit_code=Exit.USAGE,
        hints=(f"keytool -importkeystore -srckeystore {store} -destkeystore {target} -deststoretype PKCS12",),
    )


def check(store: str) -> None:
    """KctlError, with the way out, if kctl could not use it."""
    if kind_of(store) == "PKCS12":
        import shutil

        if shutil.which("openssl") is None:
            raise _no_openssl(_path(store))


def _trust(context: ssl.SSLContext, access: Access) -> None:
    import ssl

    pem = pem_of(access.ca, access.ca_password, ["-nokeys"])
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise KctlError(f"no CA certificate found in {_name(access.ca)}", exit_code=Exit.USAGE) from error


def _identify(context: ssl.SSLContext, access: Access) -> None:
    """Python reads keys from files only. These are their owner's, and a PKCS12's key stays encrypted in them."""
    import ssl
    import tempfile

    stores = access.certificate, access.key or access.certificate
    read = {store: pem_of(store, access.key_password, []) for store in stores}
    with (
        tempfile.NamedTemporaryFile("w", encoding="ascii") as chain,
        tempfile.NamedTemporaryFile("w", encoding="ascii") as key,
    ):
        for file, store in zip((chain, key), stores, strict=True):
            file.write(read[store])
            file.flush()
        try:
            context.load_cert_chain(chain.name, key.name, password=lambda: access.key_password())
        except ssl.SSLError as error:
            raise KctlError(f"{_name(stores[1])}: {_complaint(error)}", exit_code=Exit.USAGE) from error


def _complaint(error: ssl.SSLError) -> str:
    reason = (error.reason or "").lower().replace("_", " ")
    if reason == "key values mismatch":
        return "the key is not the certificate's"
    if not reason or "decrypt" in reason or "password" in reason:
        return "no key and certificate in it, or the password of the key is wrong"
    return reason


def pem_of(store: str, password: Secret, options: list[str]) -> str:
    if kind_of(store) == "PKCS12":
        return _converted(_path(store), password(), options)
    if store.lstrip().startswith(_PEM_BEGIN):
        return _in_lines(store)
    return text_of(_path(store))


def _in_lines(pem: str) -> str:
    """PEM in a .properties file is often all on one line."""
    import re

    blocks = re.findall(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", pem, re.DOTALL)
    return "".join(f"-----BEGIN {name}-----\n{_wrapped(body)}\n-----END {name}-----\n" for name, body in blocks)


def _wrapped(body: str) -> str:
    if ":" in body:  # the headers of an old encrypted key: its lines matter
        return body.strip()
    text = "".join(body.split())
    return "\n".join(text[at : at + 64] for at in range(0, len(text), 64))


def _converted(path: str, password: str, options: list[str]) -> str:
    """PEM of a PKCS12 file, a key in it encrypted with the same password. `-legacy`: files that old Java wrote."""
    import subprocess

    command = ["openssl", "pkcs12", "-in", path, "-passin", "stdin", "-passout", "stdin", *options]
    for attempt in (command, [*command, "-legacy"]):
        try:
            done = subprocess.run(attempt, input=f"{password}\n" * 2, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise _no_openssl(path) from error
        if not done.returncode:
            return done.stdout
    wrong = "invalid password" in done.stderr or "mac verify" in done.stderr.lower()
    why = "its password is wrong" if wrong else done.stderr.strip().splitlines()[-1]
    raise KctlError(f"{path}: {why}", exit_code=Exit.UNAUTHORIZED if wrong else Exit.USAGE)


def _no_openssl(path: str) -> KctlError:
    hints = (
        f"where it is: openssl pkcs12 -in {path} -out {os.path.splitext(path)[0]}.pem",
        "and name that file instead",
    )
    what = f"{path} is PKCS12, and openssl, which is needed to read it, is not installed"
    return KctlError(what, exit_code=Exit.USAGE, hints=hints)


def _path(store: str) -> str:
    return os.path.expanduser(store)


def _name(store: str) -> str:
    return "the PEM text given" if store.lstrip().startswith(_PEM_BEGIN) else store
