from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.slow
@pytest.mark.spark
def test_a_package_is_asked_for_once_and_a_method_each_time() -> None:
    from py4j.java_gateway import JavaPackage

    from kafkad_etl.driver.java_names import remembering

    asked: list[str] = []

    class View:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return JavaPackage(name, None) if name == "org" else len(asked)

    View.__getattr__ = remembering(View.__getattr__)  # type: ignore[method-assign]
    one, other = View(), View()
    assert one.org is one.org
    assert other.org is not one.org
    assert one.size != one.size
    assert asked == ["org", "org", "size", "size"]
