"""Finds JSON that may have more than its schema allows, by `Excess.java` in Spark's JVMs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kafkad_etl.driver.compiling import applied, object_of
from kafkad_etl.driver.source.json_rows import Type

_SOURCE = Path(__file__).with_name("Excess.java")


def may_exceed(spark: Any, schema: Type, strict: bool, column: Any) -> Any:
    """A condition on the column of a text's bytes; never NULL. False is certain. Fields that the schema
    lacks are too many only if `strict`."""
    return applied(spark, object_of(spark, _SOURCE).finder(json.dumps(schema), strict), column)
