"""The token by which a broker logs in at others: from a file that something else keeps fresh, or from its issuer, by
the broker's own id and secret (client credentials, RFC 6749)."""

from __future__ import annotations

import json
from base64 import b64encode
from http.client import HTTPException
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote_plus

from kafkad.security.issuer import answer_of


class NoToken(Exception):
    """The text says where it was looked for, and why there is none."""


class TokenSource(NamedTuple):
    """`client_id`, `client_secret` and `scope` are for issuers; `trusted` as for `answer_of`."""

    url: str
    client_id: str = ""
    client_secret: str = ""
    scope: str = ""
    trusted: str | None = None

    def token(self) -> str:
        """Asks now, and waits. Raises NoToken."""
        try:
            text = self._asked()
        except HTTPError as error:
            with error:
                raise NoToken(f"{self.url} answers with {error.code} {error.reason}") from error
        except (OSError, HTTPException, ValueError) as error:
            raise NoToken(f"{self.url}: {error}") from error
        if not text:
            raise NoToken(f"{self.url} has no token")
        return text

    def _asked(self) -> str:
        if not self.url.startswith("https:"):
            return answer_of(self.url).decode("ascii").strip()
        user = b64encode(f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret)}".encode()).decode()
        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        answer = answer_of(
            self.url,
            trusted=self.trusted,
            form=form,
            headers={"Authorization": f"Basic {user}", "Accept": "application/json"},
        )
        found = json.loads(answer)
        token = found.get("access_token") if isinstance(found, dict) else None
        return token if isinstance(token, str) else ""
