"""X.509 certificates, as far as a broker looks into them itself: names, dates; and the users that names stand for.

A name is written as Java does it, for ACLs and `super.users` of Kafka are written so: RFC 2253, the last part first,
and `OID=#hex` for whatever is not CN, L, ST, O, OU, C, STREET, DC or UID.
"""

from __future__ import annotations

import ipaddress
from datetime import datetime
from typing import NamedTuple

from kafkad.security.der import OCTETS, OID, SEQUENCE, element, elements, oid_text, time_of

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_TEXTS = {0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E}
"""Kinds of values that are texts: UTF8, Printable, T61, IA5, General, Universal, BMP."""
_ESCAPED = frozenset(',=+<>#;"\\')
_SUBJECT_ALT_NAME = "2.5.29.17"
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_MAIL, _DNS, _URI, _ADDRESS = 0x81, 0x82, 0x86, 0x87


class Certificate(NamedTuple):
    """`names` are the alternative ones of its subject, each with its kind before it."""

    der: bytes
    subject: str
    issuer: str
    starts: datetime
    expires: datetime
    names: frozenset[str]

    @classmethod
    def of(cls, der: bytes) -> Certificate:
        """Raises ValueError for what is no certificate."""
        try:
            fields = list(elements(element(element(der).content).content))
            if fields[0].tag == _VERSION:
                del fields[0]
            _, _, issuer, validity, subject, _, *rest = fields
            starts, expires = map(time_of, elements(validity.content))
            extensions = next((field.content for field in rest if field.tag == _EXTENSIONS), b"")
            names = _alternative_names(extensions)
        except (ValueError, IndexError) as error:
            raise ValueError(f"this is not a certificate: {error}") from error
        return cls(der, name_text(subject.whole), name_text(issuer.whole), starts, expires, names)


def subject_of(der: bytes) -> str:
    """The name of a certificate's subject. Raises ValueError."""
    return Certificate.of(der).subject


def name_text(der: bytes) -> str:
    """Raises ValueError for what is no X.500 name."""
    name = element(der)
    if name.tag != SEQUENCE:
        raise ValueError("a name is a sequence")
    parts = ["+".join(_attribute(pair.content) for pair in elements(part.content)) for part in elements(name.content)]
    return ",".join(reversed(parts))


def _attribute(pair: bytes) -> str:
    kind, value = elements(pair)
    if kind.tag != OID:
        raise ValueError("a part of a name has no kind")
    oid = oid_text(kind.content)
    if oid not in _KEYWORDS or value.tag not in _TEXTS:
        return f"{_KEYWORDS.get(oid, oid)}=#{value.whole.hex()}"
    return f"{_KEYWORDS[oid]}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join("\\00" if char == "\0" else f"\\{char}" if char in _ESCAPED else char for char in text)
    inner = escaped.strip(" \r")
    if not inner:
        return "".join(f"\\{char}" for char in escaped)
    lead = escaped.index(inner)
    before, behind = escaped[:lead], escaped[lead + len(inner) :]
    return "".join(f"\\{char}" for char in before) + inner + "".join(f"\\{char}" for char in behind)


def _alternative_names(extensions: bytes) -> frozenset[str]:
    if not extensions:
        return frozenset()
    for extension in elements(element(extensions).content):
        kind, *_, value = elements(extension.content)
        if oid_text(kind.content) == _SUBJECT_ALT_NAME and value.tag == OCTETS:
            return frozenset(_alternative(name.tag, name.content) for name in elements(element(value.content).content))
    return frozenset()


def _alternative(tag: int, content: bytes) -> str:
    kinds = {_MAIL: "email", _DNS: "DNS", _URI: "URI"}
    if tag in kinds:
        return f"{kinds[tag]}:{content.decode('ascii', 'replace')}"
    if tag == _ADDRESS and len(content) in (4, 16):
        return f"IP:{ipaddress.ip_address(content)}"
    return f"{tag:#x}:{content.hex()}"
