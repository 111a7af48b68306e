"""Columns of DDL. What is taken and what is not, Spark itself has to say too."""

from __future__ import annotations

from typing import Any

import pytest

from kafkad_etl.model.sql.ddl import columns_of_ddl
from kafkad_etl.model.sql.terms import Unparsed

TAKEN = {
    "id BIGINT, name STRING": ["id", "name"],
    "a\nint,\n\tb string": ["a", "b"],
    "id bigint not null comment 'it is, so', b INT": ["id", "b"],
    r"a INT COMMENT 'it\'s' , b INT COMMENT " + "\"two\", c INT COMMENT r'raw'": ["a", "b", "c"],
    "`a b` INT, `c``d` STRING, 1a INT, _ INT": ["a b", "c`d", "1a", "_"],
    "select INT, from STRING, not INT, comment STRING COMMENT 'c'": ["select", "from", "not", "comment"],
    "a INT -- one\n, b /* two, */ INT": ["a", "b"],
    "a DECIMAL, b DECIMAL(38), c DEC(012,2), d NUMERIC ( 3 , 1 )": ["a", "b", "c", "d"],
    "a CHAR(3), b CHARACTER(2), c VARCHAR(10)": ["a", "b", "c"],
    "a BOOLEAN, b TINYINT, c BYTE, d SMALLINT, e SHORT, f INT, g INTEGER, h LONG, i FLOAT, j REAL": list("abcdefghij"),
    "a DOUBLE, b DATE, c TIMESTAMP, d TIMESTAMP_NTZ, e TIMESTAMP_LTZ, f BINARY, g VOID, h VARIANT": list("abcdefgh"),
    "a INTERVAL, b INTERVAL DAY, c INTERVAL YEAR TO MONTH, d INTERVAL HOUR TO SECOND": ["a", "b", "c", "d"],
    "a STRING COLLATE UTF8_LCASE NOT NULL": ["a"],
    "a ARRAY<ARRAY<INT>>, b MAP < STRING , ARRAY<STRUCT<q:INT>> >": ["a", "b"],
    "a STRUCT<x: INT NOT NULL COMMENT 'a, b', `y z` ARRAY<MAP<STRING, INT>>>, b STRUCT<>": ["a", "b"],
}
REFUSED = {
    "": (1, 1),
    " ": (1, 2),
    "a": (1, 2),
    "int": (1, 4),
    "a INT,": (1, 7),
    ",a INT": (1, 1),
    "a INT b INT": (1, 7),
    "a INT,\n b BIGNT": (2, 4),
    "a TEXT": (1, 3),
    "a NULL": (1, 3),
    "a INT NULL": (1, 7),
    "a INT NOT": (1, 10),
    "a INT DEFAULT 3": (1, 7),
    "a INT COMMENT 'x' NOT NULL": (1, 19),
    "a INT COMMENT 'it''s'": (1, 19),
    "a INT COMMENT 'x": (1, 15),
    "a INT(3)": (1, 6),
    "a CHAR": (1, 7),
    "a CHAR(1,2)": (1, 9),
    "a DECIMAL(x)": (1, 11),
    "a DECIMAL(2,1,3)": (1, 14),
    "a DECIMAL(39)": (1, 11),
    "a DECIMAL(99,2)": (1, 11),
    "a DECIMAL(2,12)": (1, 13),
    "a VARCHAR(99999999999)": (1, 11),
    "a INTERVAL DAY TO HOUR TO SECOND": (1, 24),
    "a INTERVAL SECOND TO DAY": (1, 19),
    "a INTERVAL YEAR DAY": (1, 17),
    "a INTERVAL YEARS": (1, 12),
    "a ARRAY": (1, 8),
    "a ARRAY<>": (1, 9),
    "a ARRAY<INT": (1, 12),
    "a ARRAY<INT NOT NULL>": (1, 13),
    "a MAP<INT>": (1, 10),
    "a STRUCT": (1, 9),
    "a STRUCT<x>": (1, 11),
    "id: BIGINT": (1, 3),
    "1 INT": (1, 1),
    "a-b INT": (1, 2),
    "été INT": (1, 1),
    "a.b INT": (1, 2),
    "'a' INT": (1, 1),
    "a INT;": (1, 6),
    "(a INT)": (1, 1),
    "struct<a:int>": (1, 7),
    "a BIGINT UNSIGNED": (1, 10),
}


@pytest.mark.parametrize("ddl", TAKEN)
def test_names(ddl: str) -> None:
    assert list(columns_of_ddl(ddl).names) == TAKEN[ddl]


@pytest.mark.parametrize("ddl", REFUSED)
def test_what_is_wrong_has_its_place(ddl: str) -> None:
    with pytest.raises(Unparsed, match=r"^cannot be parsed") as refused:
        columns_of_ddl(ddl)
    assert (refused.value.line, refused.value.column) == REFUSED[ddl]


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(Unparsed, match=r'^cannot be parsed near "BIGNT"$') as refused:
        columns_of_ddl("a INT, b BIGNT")
    assert refused.value.hints == ('did you mean "BIGINT" or "INT"?',)
    with pytest.raises(Unparsed, match=r'^cannot be parsed near "12"$') as refused:
        columns_of_ddl("a DECIMAL(2,12)")
    assert refused.value.hints == ("the scale is at most the precision, 2",)
    with pytest.raises(Unparsed, match="it ends too early"):
        columns_of_ddl("a ARRAY<INT")
    with pytest.raises(Unparsed, match="nested too deeply"):
        columns_of_ddl("a " + "ARRAY<" * 5000 + "INT" + ">" * 5000)


@pytest.mark.slow
@pytest.mark.spark
def test_spark_takes_and_refuses_the_same(spark: Any) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    read = spark._jvm.org.apache.spark.sql.types.StructType.fromDDL
    assert {ddl: list(read(ddl).fieldNames()) for ddl in TAKEN} == TAKEN
    for ddl in REFUSED:
        with pytest.raises((Py4JJavaError, PySparkException)):
            pytest.fail(f"Spark takes {ddl!r}: {read(ddl)}")


def test_columns_that_have_others_inside_are_known() -> None:
    ddl = "a INT, `b c` array<int>, d STRUCT<e: MAP<STRING, INT>> NOT NULL, f MAP<STRING, INT> COMMENT 'g'"
    assert columns_of_ddl(ddl).nested == ("b c", "d", "f")
