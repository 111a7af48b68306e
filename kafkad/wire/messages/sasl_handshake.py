from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, message, string


@message(key=17, versions="0-1")
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    """Names the SASL mechanism to authenticate with."""

    mechanism: str = string()


@message(key=17, versions="0-1")
class SaslHandshakeResponse:
    """True if the mechanism is enabled, and which are."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)
