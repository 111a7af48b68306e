"""Reads from Hadoop's configuration files where YARN and HDFS are, as Spark will. No Hadoop is needed.

Values built from others and included files are not resolved; they are left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from xml.etree import ElementTree

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.machine.reachability import Address, address_of

VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_FILES = ("core-site.xml", "hdfs-site.xml", "yarn-site.xml")
_RM_PORT, _NAMENODE_PORT = 8032, 8020
_OVER_FILES = "spark.hadoop."
"""Prefix of Spark settings that override the files."""


class Hadoop(NamedTuple):
    settings: Mapping[str, str] = {}
    files: tuple[Path, ...] = ()
    """The files that were read."""


def find(environ: Mapping[str, str], conf: Mapping[str, object]) -> Hadoop:
    """Hadoop's settings under Spark's `conf`. Each file is taken from the first directory that has it, as on a class
    path."""
    settings: dict[str, str] = {}
    files = []
    for name in _FILES:
        for path in (directory / name for directory in directories(environ)):
            if path.is_file():
                settings |= _properties(path)
                files.append(path)
                break
    over = {name.removeprefix(_OVER_FILES): str(value) for name, value in conf.items() if name.startswith(_OVER_FILES)}
    return Hadoop(settings | over, tuple(files))


def directories(environ: Mapping[str, str]) -> list[Path]:
    return [Path(environ[name]) for name in ("SPARK_CONF_DIR", *VARIABLES) if environ.get(name)]


def need_yarn(environ: Mapping[str, str], hadoop: Hadoop) -> None:
    """Raises EtlError ENVIRONMENT if Spark could not know which YARN cluster is meant."""
    given = {name: environ[name] for name in VARIABLES if environ.get(name)}
    where = " and ".join(f"{name}={value}" for name, value in given.items())
    hint = (
        "set it to the directory with the cluster's core-site.xml, hdfs-site.xml and yarn-site.xml, such as "
        "/etc/hadoop/conf"
    )
    if not given:
        what = "master yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR, and neither is set"
        raise EtlError(what, EtlExit.ENVIRONMENT, hints=(hint,))
    if not any(Path(value).is_dir() for value in given.values()):
        raise EtlError(f"{where} is not a directory", EtlExit.ENVIRONMENT, hints=(hint,))
    if not any(path.name == "yarn-site.xml" for path in hadoop.files) and not resource_managers(hadoop.settings):
        raise EtlError(f"there is no yarn-site.xml in {where}", EtlExit.ENVIRONMENT, hints=(hint,))


def resource_managers(settings: Mapping[str, str]) -> list[Address]:
    """Addresses of the ResourceManagers, as far as they are known."""
    prefix, names = "yarn.resourcemanager", [""]
    if settings.get(f"{prefix}.ha.enabled") == "true":
        names = [f".{name.strip()}" for name in settings.get(f"{prefix}.ha.rm-ids", "").split(",")]
    found = (settings.get(f"{prefix}.address{name}") or settings.get(f"{prefix}.hostname{name}", "") for name in names)
    return list(_addresses(found, _RM_PORT))


def name_nodes(settings: Mapping[str, str], url: str) -> list[Address]:
    """Addresses of the NameNodes of an hdfs: URL, as far as they are known."""
    default = urlsplit(settings.get("fs.defaultFS", ""))
    service = urlsplit(url).netloc or (default.netloc if default.scheme == "hdfs" else "")
    names = settings.get(f"dfs.ha.namenodes.{service}", "")
    if names:
        prefix = f"dfs.namenode.rpc-address.{service}"
        return list(_addresses((settings.get(f"{prefix}.{name.strip()}", "") for name in names.split(",")), 0))
    if service in settings.get("dfs.nameservices", "").split(","):
        return []  # of a federation: not worth to be followed
    return list(_addresses([service], _NAMENODE_PORT))


def _addresses(found: Iterator[str] | list[str], port: int) -> Iterator[Address]:
    for text in found:
        address = None if "$" in text else address_of(text, port)
        if address is not None:
            yield address


def _properties(path: Path) -> dict[str, str]:
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, OSError) as error:
        raise EtlError(f"{path} cannot be read: {error}", EtlExit.ENVIRONMENT) from error
    pairs = ((each.findtext("name"), each.findtext("value")) for each in root.iter("property"))
    return {name.strip(): value.strip() for name, value in pairs if name and value}
