"""Znodes of security: ACLs, delegation tokens, and notes of their changes. Written as in `znodes`."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from kafkad.meta.nodetext import json_fields, json_text, sanitize, unsanitize
from kafkad.turns import Pieces

_ENTRIES_AT_ONCE: Final = 200
LAST_MS: Final = (1 << 63) - 1
"""The latest time that a node, or an answer, can say."""


class AclEntry(NamedTuple):
    """Names as the text has them: `User:alice`, `Allow`, `*`, `IdempotentWrite`."""

    principal: str
    permission: str
    host: str
    operation: str


class Acls:
    """The entries of one resource, of which there may be ten thousand. `resource_type` as in the path: `Topic`,
    `TransactionalId`, ..."""

    RESOURCE_TYPES = ("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User")
    PARENTS = ("/kafka-acl", "/kafka-acl-extended/prefixed")

    @staticmethod
    def path(resource_type: str, name: str, *, prefixed: bool = False) -> str:
        return f"{Acls.PARENTS[prefixed]}/{resource_type}/{name}"

    @staticmethod
    def encode(entries: Iterable[AclEntry]) -> Pieces[bytes]:
        left, texts = iter(entries), []
        while some := list(islice(left, _ENTRIES_AT_ONCE)):
            acls = [
                {"principal": e.principal, "permissionType": e.permission, "host": e.host, "operation": e.operation}
                for e in some
            ]
            texts.append(json_text(acls)[1:-1])
            yield
        return b'{"acls":[%b],"version":1}' % b",".join(texts)

    @staticmethod
    def decode(data: bytes) -> Pieces[list[AclEntry]]:
        entries: list[AclEntry] = []
        for e in json_fields(data)["acls"] if data else ():
            entries.append(AclEntry(e["principal"], e["permissionType"], e["host"], e["operation"]))
            if not len(entries) % _ENTRIES_AT_ONCE:
                yield
        return entries


ACL_CHANGE_PREFIXES = ("/kafka-acl-changes/acl_changes_", "/kafka-acl-extended-changes/acl_changes_")
"""Of literal patterns, and of prefixed ones."""


class AclChange(NamedTuple):
    """A note that a resource's ACLs changed; sequential. `resource_type` is in capitals here: `TRANSACTIONAL_ID`."""

    resource_type: str
    name: str
    prefixed: bool = False

    @property
    def prefix(self) -> str:
        return ACL_CHANGE_PREFIXES[self.prefixed]

    def encode(self) -> bytes:
        if not self.prefixed:
            return f"{self.resource_type}:{self.name}".encode()
        return json_text(
            {"version": 1, "resourceType": self.resource_type, "name": self.name, "patternType": "PREFIXED"}
        )

    @classmethod
    def decode(cls, data: bytes, *, prefixed: bool) -> AclChange:
        if prefixed:
            value = json_fields(data)
            return cls(value["resourceType"], value["name"], True)
        resource_type, separator, name = data.decode().partition(":")
        if not separator:
            raise ValueError(f"not a resource: {data!r}")
        return cls(resource_type, name)


class DelegationToken(NamedTuple):
    """A token without its secret, which brokers derive from their master key. Principals are `User:alice`."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    @staticmethod
    def path(token_id: str) -> str:
        return f"/delegation_token/tokens/{token_id}"

    def encode(self) -> bytes:
        return json_text(
            {
                "issueTimestamp": self.issued_ms,
                "renewers": [sanitize(r) for r in self.renewers],
                "tokenRequester": sanitize(self.requester),
                "tokenId": self.token_id,
                "owner": sanitize(self.owner),
                "expiryTimestamp": self.expires_ms,
                "maxTimestamp": self.max_ms,
                "version": 3,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> DelegationToken:
        value = json_fields(data)
        owner = unsanitize(value["owner"])
        return cls(
            token_id=str(value["tokenId"]),
            owner=owner,
            requester=unsanitize(value["tokenRequester"]) if "tokenRequester" in value else owner,
            renewers=tuple(unsanitize(r) for r in value.get("renewers", ())),
            issued_ms=_time_ms(value["issueTimestamp"]),
            expires_ms=_time_ms(value["expiryTimestamp"]),
            max_ms=_time_ms(value["maxTimestamp"]),
        )


def _time_ms(value: int) -> int:
    if not 0 <= int(value) <= LAST_MS:
        raise ValueError(f"{value} is no time")
    return int(value)


class DelegationTokenChange:
    """A note that a token changed; sequential. The text is the token id."""

    PARENT = "/delegation_token/token_changes"
    PREFIX = "/delegation_token/token_changes/token_change_"

    @staticmethod
    def encode(token_id: str) -> bytes:
        return token_id.encode()

    @staticmethod
    def decode(data: bytes) -> str:
        return data.decode()


class LoginSecret:
    """kafkad's own: a secret that the brokers of a cluster share, by which they make up users who do not exist."""

    PATH = "/kafkad/login_secret"

    @staticmethod
    def encode(secret: bytes) -> bytes:
        return json_text({"version": 1, "secret": b64encode(secret).decode()})

    @staticmethod
    def decode(data: bytes) -> bytes:
        return b64decode(str(json_fields(data)["secret"]), validate=True)
