"""Logins by tickets of Kerberos (GSSAPI, RFC 4752), by the system's library."""

from __future__ import annotations

import os.path
from collections.abc import Generator
from typing import Any, Final

import gssapi
from gssapi import raw

_NO_LAYER: Final = b"\x01\0\0\0"
"""Nothing but TLS protects what follows."""


class NoTicket(Exception):
    """The text says for whom, and why."""


def by_ticket(service: str, host: str, principal: str, keytab: str) -> Generator[bytes, bytes, None]:
    """Yields what to say, and is sent what is answered. Without a keytab the ticket is among those that the system has.
    Raises NoTicket."""
    target = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
    try:
        context = gssapi.SecurityContext(
            name=target,
            creds=_credentials(principal, keytab),
            mech=gssapi.MechType.kerberos,
            usage="initiate",
            flags=[gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity],
        )
        answer = yield context.step() or b""
        while not context.complete:
            answer = yield context.step(answer) or b""
        offer = context.unwrap(answer).message
        if len(offer) != len(_NO_LAYER) or not offer[0] & _NO_LAYER[0]:
            raise NoTicket("the broker wants Kerberos to protect messages, which only TLS does here")
        yield context.wrap(_NO_LAYER, False).message
    except raw.GSSError as error:
        whose = principal or "anybody"
        raise NoTicket(f"no ticket of {whose} for {service} on {host}: {_reason(error)}") from error


def _credentials(principal: str, keytab: str) -> Any:
    name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
    store = {"client_keytab": os.path.expanduser(keytab), "ccache": f"MEMORY:{principal}"} if keytab else None
    return gssapi.Credentials(name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store)


def _reason(error: raw.GSSError) -> str:
    """Of the library's two texts the one that says more."""
    minor = error.get_all_statuses(error.min_code, False) if error.min_code else []
    return ", ".join(minor or error.get_all_statuses(error.maj_code, True))
