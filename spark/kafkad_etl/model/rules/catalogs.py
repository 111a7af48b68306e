"""Rules for tables of Iceberg and the catalogs that have them."""

from __future__ import annotations

from collections.abc import Iterator

from kafkad_etl.facts import KNOWN_DATABASES
from kafkad_etl.job import Catalog, IcebergSink, Job
from kafkad_etl.model.document import Mistake

_PATH = "sink.iceberg.catalog"
_ONLY_FOR = {
    "url": ("jdbc", "rest"),
    "user": ("jdbc", "rest"),
    "password": ("jdbc", "rest"),
    "token": ("rest",),
    "credential": ("rest",),
    "warehouse": ("rest",),
}
"""Keys of a catalog, and the types they apply to."""
_OWN_KEYS = {
    "type": "type",
    "uri": "url",
    "jdbc.user": "user",
    "jdbc.password": "password",
    "token": "token",
    "credential": "credential",
}
"""Properties of a catalog, and the keys that set them."""


def mistakes(job: Job, settings: IcebergSink) -> Iterator[Mistake]:
    parts = settings.table.split(".")
    if len(parts) < 2 or not all(part and part == part.strip() and "/" not in part for part in parts):
        hint = "its namespace comes first: shop.orders"
        yield Mistake("sink.iceberg.table", f'"{settings.table}" is not the name of a table', (hint,))
    catalog = settings.catalog
    for name, types in _ONLY_FOR.items():
        if getattr(catalog, name) and catalog.type not in types:
            yield Mistake(f"{_PATH}.{name}", f"applies only to type {', '.join(types)}, not {catalog.type}")
    for name, key in _OWN_KEYS.items():
        if name in catalog.options:
            yield Mistake(f"{_PATH}.options.{name}", f"has its own key: {key}", (f"set {_PATH}.{key}",))
    if "warehouse" in catalog.options:
        key = f"{_PATH}.warehouse" if catalog.type == "rest" else "sink.path"
        yield Mistake(f"{_PATH}.options.warehouse", f"has its own key: {key}", (f"set {key}",))
    if catalog.type == "jdbc":
        yield from _jdbc(job, catalog)
    if catalog.type == "rest":
        yield from _rest(job, catalog)
    if catalog.password and not catalog.user:
        yield Mistake(_PATH, "a password needs a `user`")


def _jdbc(job: Job, catalog: Catalog) -> Iterator[Mistake]:
    if not catalog.url:
        yield Mistake(_PATH, "type jdbc needs a `url`", ("url: jdbc:postgresql://host/database",))
    elif not catalog.url.startswith("jdbc:"):
        yield Mistake(f"{_PATH}.url", "must start with jdbc:", ("jdbc:postgresql://host/database",))
    elif not catalog.url.startswith(KNOWN_DATABASES) and not _brings_jars(job):
        hint = "spark.jars: [its JDBC driver]; those for PostgreSQL and SQLite are downloaded automatically"
        yield Mistake(f"{_PATH}.url", "needs the database's driver", (hint,))


def _brings_jars(job: Job) -> bool:
    return bool(job.spark.jars) or any(name in job.spark.conf for name in ("spark.jars", "spark.jars.packages"))


def _rest(job: Job, catalog: Catalog) -> Iterator[Mistake]:
    if not catalog.url:
        yield Mistake(_PATH, "type rest needs a `url`", ("url: https://host:8181",))
    elif not catalog.url.startswith(("http://", "https://")):
        yield Mistake(f"{_PATH}.url", f'"{catalog.url}" is not the URL of a catalog', ("https://host:8181",))
    if job.sink.path:
        hint = f"remove it; {_PATH}.warehouse names one of the server's"
        yield Mistake("sink.path", "a rest catalog decides itself where its tables are", (hint,))
    logins = [name for name in ("user", "token", "credential") if getattr(catalog, name)]
    if len(logins) > 1:
        yield Mistake(f"{_PATH}.{logins[1]}", f"give either {logins[0]} or {logins[1]}, not both")
    if catalog.credential and not all(catalog.credential.partition(":")):
        yield Mistake(f"{_PATH}.credential", "must be id:secret")
