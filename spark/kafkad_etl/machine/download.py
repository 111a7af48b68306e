"""Fetches jars from the cache or a Maven repository, and verifies them against the lock before they get their final
name.

This does not use Spark's Ivy: it trusts the system's CAs, supports HTTPS_PROXY, NO_PROXY and .netrc, and needs no
network once the jars are cached.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.machine.cache import completed_file
from kafkad_etl.machine.jars import Jar, fault

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.request import Request


CENTRAL = "https://repo1.maven.org/maven2"
TIMEOUT_SECONDS = 30
_PIECE = 1 << 18

_MIRRORS = (
    "use a mirror with --repo URL or KAFKAD_MAVEN_REPO (a URL or a directory), or a proxy with HTTPS_PROXY",
    "offline: run kctl etl jars fetch --to DIR elsewhere, and set KAFKAD_MAVEN_REPO=DIR here",
)


def fetched(jars: Sequence[Jar], directory: Path, environ: Mapping[str, str], repository: str = "") -> list[Path]:
    """Paths of the jars, after downloading those that are missing."""
    for jar in jars:
        if what := fault(jar, directory / jar.path):
            if what != "is missing":
                _refuse(directory / jar.path, what)
            download(jar, directory / jar.path, repository_url(environ, repository), environ)
    return [directory / jar.path for jar in jars]


def _refuse(path: Path, what: str) -> None:
    raise EtlError(
        f"{path} {what}",
        EtlExit.ENVIRONMENT,
        hints=("it has changed since it was downloaded; delete it to download it again",),
    )


def repository_url(environ: Mapping[str, str], chosen: str = "") -> str:
    """The repository's URL; a directory works as a repository too."""
    url = chosen or environ.get("KAFKAD_MAVEN_REPO") or CENTRAL
    return url.rstrip("/") if "://" in url else Path(url).absolute().as_uri()


def download(jar: Jar, target: Path, repository: str, environ: Mapping[str, str]) -> None:
    """Downloads a jar completely and verifies it, or leaves nothing."""
    with completed_file(target, f"{jar.coordinate} cannot be stored") as part:
        _receive(jar, part, repository, environ)


def _receive(jar: Jar, part: Path, repository: str, environ: Mapping[str, str]) -> None:
    import hashlib

    digest, size = hashlib.sha256(), 0
    request, shown = _request(f"{repository}/{jar.path}", environ)
    with _open(jar, request, shown) as response, part.open("wb") as file:
        while piece := _read(jar, response, shown):
            file.write(piece)
            digest.update(piece)
            size += len(piece)
            if size > jar.bytes:
                break
        os.fsync(file.fileno())
    if size < jar.bytes:
        raise _failed(jar, shown, f"ends after {size:,} of {jar.bytes:,} bytes")
    if size > jar.bytes or digest.hexdigest() != jar.sha256:
        is_now = f"its SHA-256 is {digest.hexdigest()}" if size == jar.bytes else "it is too long"
        raise EtlError(
            f"{shown} does not match the locked checksum of {jar.coordinate}: {is_now}, expected {jar.sha256}",
            EtlExit.ENVIRONMENT,
            hints=("nothing was stored; try another repository with --repo",),
        )


def _read(jar: Jar, response: HTTPResponse, shown: str) -> bytes:
    from http.client import HTTPException

    try:
        return response.read(_PIECE)
    except (OSError, HTTPException) as error:
        raise _failed(jar, shown, f"was interrupted: {error}") from error


def _open(jar: Jar, request: Request, shown: str) -> Any:
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import build_opener

    try:
        return build_opener().open(request, timeout=TIMEOUT_SECONDS)  # which looks for proxies now
    except HTTPError as error:
        error.close()
        raise _failed(jar, shown, f"returned HTTP {error.code} {error.reason}") from error
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise _failed(jar, shown, f"cannot be reached: {getattr(error, 'reason', error)}") from error


def _failed(jar: Jar, shown: str, what: str) -> EtlError:
    return EtlError(f"{shown} {what}: {jar.coordinate} is not in the cache", EtlExit.ENVIRONMENT, hints=_MIRRORS)


def _request(url: str, environ: Mapping[str, str]) -> tuple[Request, str]:
    """A request, and its URL without credentials. These come from the URL or .netrc and are not sent along with a
    redirect."""
    from base64 import b64encode
    from urllib.parse import unquote, urlsplit, urlunsplit
    from urllib.request import Request

    parts = urlsplit(url)
    login = (unquote(parts.username or ""), unquote(parts.password or "")) if parts.username else None
    shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    request = Request(shown, headers={"User-Agent": "kafkad-etl"})
    if login is None and parts.hostname:
        login = _from_netrc(parts.hostname, environ)
    if login:
        token = b64encode(":".join(login).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return request, shown


def _from_netrc(host: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    import netrc

    path = Path(environ.get("NETRC") or Path.home() / ".netrc")
    if not path.is_file():
        return None
    try:
        found = netrc.netrc(path).authenticators(host)
    except (netrc.NetrcParseError, OSError) as error:
        raise EtlError(f"{path} cannot be read: {error}", EtlExit.ENVIRONMENT) from error
    return (found[0], found[2] or "") if found else None
