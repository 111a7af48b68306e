"""Checks a job's SQL and columns without Spark. Only jobs with SQL pay for importing sqlglot."""

from __future__ import annotations

from kafkad_etl.model.sql.findings import findings
from kafkad_etl.model.sql.terms import Finding

__all__ = ["Finding", "findings"]
