"""What can be said of a job's SQL without Spark. It costs an import of sqlglot: only for jobs that have SQL."""

from __future__ import annotations

from kafkad_etl.sql.findings import Finding, findings

__all__ = ["Finding", "findings"]
