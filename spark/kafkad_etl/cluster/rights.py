"""Rights of a job's user in its clusters: which one is missing, and the command that grants it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkad.errors import ErrorCode
from kafkad_etl.errors import EtlError, EtlExit
from kctl.acls.bindings import ANYWHERE, Binding, Resource, adding
from kctl.errors import KctlError

if TYPE_CHECKING:
    from kctl.reach.access import Access
    from kctl.reach.session import Session

_REFUSALS = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED.name,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.name,
}


def grant(access: Access, operation: str, resource: str, name: str, *, prefixed: bool = False) -> str:
    """What to do about a missing right. `resource` is one of kctl's types of resources."""
    wanted = Resource(resource, name, "prefixed" if prefixed else "literal")
    command = adding(Binding(principal(access), ANYWHERE, operation, wanted, "allow"))
    return f"ask the cluster's administrator: kctl {command}"


def principal(access: Access) -> str:
    """The user as ACLs name it. Whom a certificate or a token stands for, only the brokers know: NAME."""
    if access.has_sasl:
        is_named = access.username and not access.tokenauth and access.mechanism.startswith(("PLAIN", "SCRAM"))
        return f"User:{access.username}" if is_named else "User:NAME"
    return "User:NAME" if access.certificate else "User:ANONYMOUS"


def need_delivery(session: Session, name: str, prefix: str) -> None:
    """Raises EtlError CLUSTER if the user may not write with this transactional id, or not read the group of the same
    name. `prefix`: how those of all checkpoints of the job begin."""
    missing = []
    if _refused(_answer_to_end(session, name)):
        missing.append((f'write with transactional id "{name}"', "Write", "transactional-id"))
    if _refused(_answer_to_heartbeat(session, name)):
        missing.append((f'read group "{name}"', "Read", "group"))
    if missing:
        raise EtlError(
            f"not authorised to {' and to '.join(what for what, _, _ in missing)}",
            EtlExit.CLUSTER,
            key="sink.topic.delivery",
            hints=[grant(session.access, right, kind, prefix, prefixed=True) for _, right, kind in missing],
        )


def _answer_to_end(session: Session, name: str) -> object:
    """Ends the transaction of a producer that nobody is, which needs the right to write and changes nothing."""
    from kafkad.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
    from kctl.reach.session import TRANSACTION

    def ask(asked: list[str]) -> EndTxnRequest:
        return EndTxnRequest(transactional_id=asked[0], producer_id=-1, producer_epoch=-1, committed=False)

    def read(answer: EndTxnResponse) -> list[tuple[str, int, None]]:
        return [(name, answer.error_code, None)]

    return session.ask_coordinators([name], ask, read, TRANSACTION)[name]


def _answer_to_heartbeat(session: Session, name: str) -> object:
    """A heartbeat of a member that nobody is, which needs the right to read and changes nothing."""
    from kafkad.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

    def ask(asked: list[str]) -> HeartbeatRequest:
        return HeartbeatRequest(group_id=asked[0], generation_id=-1, member_id="nobody")

    def read(answer: HeartbeatResponse) -> list[tuple[str, int, None]]:
        return [(name, answer.error_code, None)]

    return session.ask_coordinators([name], ask, read)[name]


def _refused(answer: object) -> bool:
    return isinstance(answer, KctlError) and answer.code in _REFUSALS
