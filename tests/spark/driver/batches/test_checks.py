from __future__ import annotations

from decimal import Decimal

from kafkad_etl.driver.batches.checks import holds


def test_a_check_compares_what_yaml_and_spark_write_differently() -> None:
    assert holds(Decimal("1.50"), 1.5) and holds(0, 0) and holds("x", "x") and holds(None, None) and holds(True, True)
    assert not holds(1, 0) and not holds(None, 0) and not holds(1, True) and not holds("0", 0.5)
