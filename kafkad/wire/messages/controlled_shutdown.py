from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, int64, message, nested, string


@message(key=7, versions="0-3", flexible="3+")
class ControlledShutdownRequest(Request["ControlledShutdownResponse"]):
    """A broker asks the controller to move its leaderships before it stops."""

    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)


@nested
class RemainingPartition:
    topic_name: str = string()
    partition_index: int = int32()


@message(key=7, versions="0-3", flexible="3+")
class ControlledShutdownResponse:
    """The partitions that the broker still leads."""

    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
