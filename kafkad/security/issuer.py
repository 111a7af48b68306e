"""Asks issuers of tokens for their keys and for tokens, over HTTPS or by a file. These calls block: call them in a
thread."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener, url2pathname

from kafkad.config.files import content_of

_MOST_BYTES: Final = 1 << 20
_TIMEOUT_S: Final = 10.0


def checked(url: str) -> SplitResult:
    """The parts of a URL. ValueError for one that is neither https:// nor that of a file."""
    split = urlsplit(url)
    if (split.scheme == "file" and not split.netloc) or (split.scheme == "https" and split.netloc):
        return split
    raise ValueError(f"{url}: an issuer of tokens is asked by https://… or file:///…")


def answer_of(
    url: str,
    *,
    trusted: str | None = None,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """`trusted` is a file with the certificates in PEM that vouch for the issuer; None: those of the system do. A
    `form` is posted. Raises OSError, HTTPException or ValueError."""
    split = checked(url)
    if split.scheme == "file":
        return content_of(url2pathname(split.path))
    data = urlencode(form).encode() if form is not None else None
    opener = build_opener(_NoRedirect, HTTPSHandler(context=context_of(trusted)))
    with opener.open(Request(url, data, dict(headers or {})), timeout=_TIMEOUT_S) as answer:
        text: bytes = answer.read(_MOST_BYTES)
        return text


def context_of(trusted: str | None) -> ssl.SSLContext:
    """As for `answer_of`. Raises OSError or ValueError."""
    if trusted is not None:
        content_of(trusted)  # OpenSSL would wait for a pipe, and read a device without end
    return ssl.create_default_context(cafile=trusted)


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirects: where they lead was not configured."""

    def redirect_request(self, *_: Any) -> None:
        return None
