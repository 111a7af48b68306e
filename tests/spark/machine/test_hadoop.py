from __future__ import annotations

from pathlib import Path

import pytest

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.machine.hadoop import find, name_nodes, need_yarn, resource_managers
from kafkad_etl.machine.reachability import address_of


def conf(directory: Path, **files: dict[str, str]) -> Path:
    """`core_site={…}` and so on."""
    directory.mkdir(exist_ok=True)
    for name, settings in files.items():
        listed = "".join(f"<property><name>{n}</name><value>{v}</value></property>" for n, v in settings.items())
        (directory / f"{name.replace('_', '-')}.xml").write_text(f"<configuration>{listed}</configuration>")
    return directory


def test_each_file_counts_where_it_is_found_first_and_sparks_settings_stand_above_it(tmp_path: Path) -> None:
    first = conf(tmp_path / "a", core_site={"fs.defaultFS": "hdfs://a"})
    second = conf(tmp_path / "b", core_site={"fs.defaultFS": "hdfs://b"}, yarn_site={"x": "1", "y": "1"})
    environ = {"HADOOP_CONF_DIR": str(first), "YARN_CONF_DIR": str(second)}
    found = find(environ, {"spark.hadoop.y": 2, "spark.ui.enabled": "false"})
    assert found.settings == {"fs.defaultFS": "hdfs://a", "x": "1", "y": "2"}
    assert found.files == (first / "core-site.xml", second / "yarn-site.xml")
    assert find({}, {}).settings == {}


def test_a_file_that_is_no_xml_is_named(tmp_path: Path) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(EtlError, match=r"core-site.xml cannot be read: no element found") as refused:
        find({"HADOOP_CONF_DIR": str(tmp_path)}, {})
    assert refused.value.exit_code == EtlExit.ENVIRONMENT


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"address": "rm:8050"}, [("rm", 8050)]),
        ({"hostname": "rm"}, [("rm", 8032)]),
        ({"address": "${yarn.resourcemanager.hostname}:8032"}, []),
        ({}, []),
        (
            {"ha.enabled": "true", "ha.rm-ids": "1, 2", "address.1": "a:1", "hostname.2": "b", "address": "c:1"},
            [("a", 1), ("b", 8032)],
        ),
    ],
)
def test_where_the_resource_managers_are(settings: dict[str, str], expected: list[tuple[str, int]]) -> None:
    assert resource_managers({f"yarn.resourcemanager.{name}": value for name, value in settings.items()}) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("hdfs://nn:9000/lake", [("nn", 9000)]),
        ("hdfs://nn/lake", [("nn", 8020)]),
        ("hdfs:///lake", [("default", 9000)]),
        ("hdfs:/lake", [("default", 9000)]),
        ("hdfs://both/lake", [("a", 1), ("b", 2)]),
        ("hdfs://other/lake", []),
    ],
)
def test_where_the_name_nodes_are(url: str, expected: list[tuple[str, int]]) -> None:
    settings = {
        "fs.defaultFS": "hdfs://default:9000",
        "dfs.nameservices": "both,other",
        "dfs.ha.namenodes.both": "n1, n2",
        "dfs.namenode.rpc-address.both.n1": "a:1",
        "dfs.namenode.rpc-address.both.n2": "b:2",
    }
    assert name_nodes(settings, url) == expected


def test_a_default_that_is_no_hdfs_names_no_name_node() -> None:
    assert name_nodes({"fs.defaultFS": "file:///"}, "hdfs:///lake") == []


def test_yarn_needs_a_directory_that_says_where_it_is(tmp_path: Path) -> None:
    def refused(**environ: str) -> str:
        with pytest.raises(EtlError) as told:
            need_yarn(environ, find(environ, {}))
        assert told.value.exit_code == EtlExit.ENVIRONMENT and "/etc/hadoop/conf" in told.value.hints[0]
        return told.value.what

    assert refused() == "master yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR, and neither is set"
    assert refused(HADOOP_CONF_DIR="/no/such") == "HADOOP_CONF_DIR=/no/such is not a directory"
    assert refused(YARN_CONF_DIR=str(tmp_path)) == f"there is no yarn-site.xml in YARN_CONF_DIR={tmp_path}"
    environ = {"HADOOP_CONF_DIR": str(tmp_path)}
    need_yarn(environ, find(environ, {"spark.hadoop.yarn.resourcemanager.address": "rm:1"}))
    conf(tmp_path, yarn_site={"x": "1"})
    need_yarn(environ, find(environ, {}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("h:1", ("h", 1)), ("h", ("h", 7)), ("[::1]:1", ("::1", 1)), ("[::1]", ("::1", 7)), ("h:x", None), ("", None)],
)
def test_addresses(text: str, expected: tuple[str, int] | None) -> None:
    assert address_of(text, 7) == expected
