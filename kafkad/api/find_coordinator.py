"""FindCoordinator, 0 to 6: which broker keeps the state of a group or a transactional id; from 4 on, of many. The first
to ask for one makes the topic that the state is in."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError
from kafkad.security.authorizer import CLUSTER_NAME, REFUSALS, Operation, ResourceType
from kafkad.shard import Coordination
from kafkad.turns import Pieces, each
from kafkad.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP, _TRANSACTION, _SHARE = range(3)
_RIGHTS = {
    _GROUP: (Operation.DESCRIBE, ResourceType.GROUP),
    _TRANSACTION: (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    _SHARE: (Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
}
_FIRST_BATCHED = 4
_FIRST_WITH_SHARE_GROUPS = 6

_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)
_UNAVAILABLE = "The coordinator is not available."

Answer = Pieces[FindCoordinatorResponse]


def handle(
    context: Context, request: Request, message: FindCoordinatorRequest
) -> Pieces[FindCoordinatorResponse | Coroutine[Any, Any, Answer]]:
    batched = request.version >= _FIRST_BATCHED
    wanted, refused = [], []
    for key in message.coordinator_keys if batched else [message.key]:
        yield
        if _may_ask(request, message.key_type, key):
            wanted.append(key)
        else:
            refused.append(_forbidden(message.key_type, key, batched))
    if wanted:
        return _when_prepared(context, request, message.key_type, wanted, refused)
    return _response(request, refused)


async def _when_prepared(
    context: Context, request: Request, kind: int, wanted: Sequence[str], refused: Sequence[Coordinator]
) -> Answer:
    """The rest of the work, when the topic is there."""
    find: Callable[[str], Coordinator]
    try:
        find = partial(_find, await _prepared(context, request, kind), request.listener)
    except KafkaError as error:
        find = partial(_refused, error=error)
    return _answer(request, find, wanted, refused)


def _answer(
    request: Request, find: Callable[[str], Coordinator], wanted: Sequence[str], refused: Sequence[Coordinator]
) -> Answer:
    found = yield from each(find, wanted)
    return _response(request, [*found, *refused])


def _response(request: Request, coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    if request.version >= _FIRST_BATCHED:
        return FindCoordinatorResponse(coordinators=coordinators)
    [only] = coordinators
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=_spelled_out(only),
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _may_ask(request: Request, kind: int, key: str) -> bool:
    if kind not in _RIGHTS:
        return True  # and is refused as an unknown kind
    operation, resource = _RIGHTS[kind]
    return request.allowed(operation, resource, CLUSTER_NAME if resource is ResourceType.CLUSTER else key)


def _forbidden(kind: int, key: str, batched: bool) -> Coordinator:
    code, words = REFUSALS[_RIGHTS[kind][1]]
    return _refused(key, KafkaError(code, "" if batched else words))


async def _prepared(context: Context, request: Request, kind: int) -> Coordination[Any]:
    _check_kind(kind, request.version)
    coordination: Coordination[Any] = context.group_coordination
    if kind == _TRANSACTION:
        coordination = context.transactions().coordination
    await coordination.prepare()
    return coordination


def _check_kind(kind: int, version: int) -> None:
    if kind == _SHARE and version >= _FIRST_BATCHED:
        known = version >= _FIRST_WITH_SHARE_GROUPS
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE if known else ErrorCode.INVALID_REQUEST)
    if kind not in (_GROUP, _TRANSACTION):
        raise KafkaError(ErrorCode.INVALID_REQUEST, _MALFORMED)


def _find(coordination: Coordination[Any], listener: str, key: str) -> Coordinator:
    try:
        broker = coordination.find(key)
    except KafkaError as error:
        return _refused(key, error)
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        return _refused(key, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    return Coordinator(key=key, node_id=broker.id, host=endpoint.host, port=endpoint.port, error_message="")


def _refused(key: str, error: KafkaError) -> Coordinator:
    """The answer without a coordinator. The reason is logged for operators: clients only ask again."""
    words = "" if error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE else error.message or ""
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=words)


def _spelled_out(found: Coordinator) -> str:
    """The versions for one key say even of a success what its code means."""
    if found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return _UNAVAILABLE
    return found.error_message or (ErrorCode.NONE.name if not found.error_code else _MALFORMED)
