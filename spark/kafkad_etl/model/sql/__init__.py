"""What can be said of a job's SQL and its columns without Spark. Only a job that has SQL costs an import of sqlglot."""

from __future__ import annotations

from kafkad_etl.model.sql.findings import findings
from kafkad_etl.model.sql.terms import Finding

__all__ = ["Finding", "findings"]
