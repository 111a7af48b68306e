"""Tickets of Kerberos, by the system's library: it verifies them with the keys of a keytab, without asking the KDC, and
gets the broker's own from the KDC with the same keys."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress

import gssapi
from gssapi import raw

from kafkad.config import Config
from kafkad.config.files import content_of
from kafkad.security.gssapi import GSSAPI, Service, TicketRefused, service

_KERBEROS = gssapi.MechType.kerberos
_KIND = re.compile(r"^(WR)?FILE:")
"""Of a keytab, before its path."""
_SESSION_KEY = gssapi.OID.from_int_seq("1.2.840.113554.1.2.2.5.5")
"""GSS_C_INQ_SSPI_SESSION_KEY: the broker's subkey, or else the client's."""


class KerberosAcceptance:
    """The keytab is read each time, so that new keys hold at once."""

    def __init__(self, tickets: Service) -> None:
        self.principal: str | None = None
        self._context: raw.SecurityContext | None = None
        self._is_mutual = False
        try:
            self._credentials = _credentials(tickets)
        except (raw.GSSError, OSError, ValueError) as error:
            raise TicketRefused(f"keytab {tickets.keytab}: {reason(error)}") from error

    def take(self, token: bytes) -> bytes:
        try:
            taken = raw.accept_sec_context(token, acceptor_creds=self._credentials, context=self._context)
        except raw.GSSError as error:
            raise TicketRefused(f"its ticket: {reason(error)}") from error
        self._context = taken.context
        if not taken.more_steps:
            self.principal = str(raw.display_name(taken.initiator_name, name_type=False).name, "utf-8", "replace")
            self._is_mutual = gssapi.RequirementFlag.mutual_authentication in taken.flags
        return bytes(taken.token or b"")

    def wrap(self, message: bytes) -> bytes:
        return _wrap(self._context, message)

    def unwrap(self, message: bytes) -> bytes:
        return _unwrap(self._context, message)

    def mark(self) -> bytes:
        """Java's clients do not ask for the broker's proof, so that all keys and numbers are the client's. With a proof
        the broker's numbers are its own; the key is, too, but where it is of the old kinds, as of RC4."""
        try:
            if self._is_mutual:
                own = raw.inquire_sec_context_by_oid(self._context, _SESSION_KEY)[0]
            else:
                own = raw.get_mic(self._context, b"")
            return hashlib.sha256(own).digest()
        except raw.GSSError as error:
            raise TicketRefused(f"its last message: {reason(error)}") from error


class KerberosInitiation:
    """With a ticket for a service. The library keeps it in memory, and renews it by the keytab when it is half over; to
    make this, and the first token, may take as long as the KDC takes."""

    def __init__(self, own: Service, name: str, host: str) -> None:
        """The service's name, and the host that it is on."""
        self.established = False
        self._context: raw.SecurityContext | None = None
        principal = gssapi.Name(own.principal, gssapi.NameType.kerberos_principal)
        store = {"client_keytab": own.keytab, "ccache": f"MEMORY:{own.principal}"}
        try:
            _check(own.keytab)
            self._credentials = gssapi.Credentials(name=principal, usage="initiate", mechs=[_KERBEROS], store=store)
        except (raw.GSSError, OSError, ValueError) as error:
            raise TicketRefused(f"there is no ticket for {own.principal}: {reason(error)}") from error
        self._target = gssapi.Name(f"{name}@{host}", gssapi.NameType.hostbased_service)

    def take(self, token: bytes) -> bytes:
        flags = [gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity]
        try:
            taken = raw.init_sec_context(
                self._target,
                creds=self._credentials,
                context=self._context,
                mech=_KERBEROS,
                flags=flags,
                input_token=token or None,
            )
        except raw.GSSError as error:
            raise TicketRefused(f"no ticket for {self._target}: {reason(error)}") from error
        self._context = taken.context
        self.established = not taken.more_steps
        return bytes(taken.token or b"")

    def wrap(self, message: bytes) -> bytes:
        return _wrap(self._context, message)

    def unwrap(self, message: bytes) -> bytes:
        return _unwrap(self._context, message)


def _wrap(context: raw.SecurityContext | None, message: bytes) -> bytes:
    return bytes(raw.wrap(context, message, confidential=False).message)


def _unwrap(context: raw.SecurityContext | None, message: bytes) -> bytes:
    try:
        return bytes(raw.unwrap(context, message).message)
    except raw.GSSError as error:
        raise TicketRefused(f"its last message: {reason(error)}") from error


def problem(config: Config) -> str | None:
    """Why a listener could accept no ticket at all."""
    for listener in config.listeners_with(GSSAPI):
        tickets = service(config, listener)
        try:
            _credentials(tickets)
        except (raw.GSSError, OSError, ValueError) as error:
            return f"listener {listener}: keytab {tickets.keytab}: {reason(error)}"
    return None


def reason(error: Exception) -> str:
    """The library's own words, of the two that it has the one that says more."""
    if not isinstance(error, raw.GSSError):
        return str(error)
    minor = error.get_all_statuses(error.min_code, False) if error.min_code else []
    return ", ".join(minor or error.get_all_statuses(error.maj_code, True))


def _credentials(tickets: Service) -> raw.Creds:
    """Without a replay cache in a file, which would be written in the event loop and would need a place. Whoever sends
    another's ticket again cannot answer the next message without the key in it. Whoever recorded that answer too could;
    SeenLogins refuses those."""
    _check(tickets.keytab)
    name = gssapi.Name(tickets.principal, gssapi.NameType.kerberos_principal)
    store = {"keytab": tickets.keytab, "rcache": "none:"}
    return gssapi.Credentials(name=name, usage="accept", mechs=[_KERBEROS], store=store)


def _check(keytab: str) -> None:
    """Raises ValueError where the library would wait, or read, without end. What is wrong otherwise it says itself."""
    with suppress(OSError):
        content_of(_KIND.sub("", keytab))
