"""Reads the groups that wait in Spark's state for their windows to end when a run stops."""

from __future__ import annotations

from typing import Any

from kafkad_etl.messages import OpenWindows


def open_windows(spark: Any, checkpoint: str) -> OpenWindows | None:
    """The open windows; None if the job has no groups."""
    operators = spark.read.format("state-metadata").load(checkpoint)
    aggregates = operators.where("operatorName = 'stateStoreSave'").selectExpr("min(operatorId)").first()
    if aggregates[0] is None:
        return None
    state = spark.read.format("statestore").option("operatorId", aggregates[0]).load(checkpoint)
    keys = state.schema["key"].dataType
    window = next((field for field in keys if field.dataType.typeName() == "struct"), None)
    moment = next((field for field in keys if field.dataType.typeName() == "timestamp"), None)
    if window and [each.name for each in window.dataType] == ["start", "end"]:
        path = f"key.`{window.name}`"
        text = f"concat({_iso(path + '.start')}, '/', {_iso(path + '.end')})"
    else:
        text = _iso(f"key.`{moment.name}`") if moment else "''"
    groups, first, last = state.selectExpr("count(*)", f"min({text})", f"max({text})").first()
    return OpenWindows(groups=groups, first=first or "", last=last or "")


def _iso(column: str) -> str:
    return f"date_format({column}, \"yyyy-MM-dd'T'HH:mm:ssXXX\")"
