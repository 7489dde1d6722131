"""Which nodes of a host belong to a GPU, read from what its driver writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.errors import Refused
from swarm.judge.cuda.nodes import library_folders, minor, nodes, site_folders

UUID = "GPU-303b186a-e5ab-72e8-66ce-07d5243fae8a"
INFORMATION = """Model: \t\t NVIDIA H200
IRQ:   \t\t 41
GPU UUID: \t {uuid}
Bus Location: \t 0000:00:06.0
Device Minor: \t {minor}
GPU Excluded:\t No
"""
MAPS = """\
7f0000000000-7f0000001000 r-xp 00000000 08:01 12 /usr/local/nvidia/lib64/libcuda.so.580.159.04
7f0000001000-7f0000002000 r--p 00000000 08:01 12 /usr/local/nvidia/lib64/libcuda.so.580.159.04
7f0000003000-7f0000004000 r--p 00000000 08:01 13 /usr/lib/libc.so.6
7f0000005000-7f0000006000 rw-p 00000000 00:00 0
"""


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    for number, uuid in ((3, UUID), (0, "GPU-00000000-0000-0000-0000-000000000000")):
        folder = tmp_path / "driver" / "gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(INFORMATION.format(uuid=uuid, minor=number))
    return tmp_path / "driver"


def test_only_the_nodes_of_the_one_gpu_are_given(driver: Path, tmp_path: Path) -> None:
    dev = tmp_path / "dev"
    dev.mkdir()
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        (dev / name).touch()
        (dev / name).chmod(0o666)
    assert minor(UUID, driver) == 3
    names = [path.name for path in nodes(UUID, driver=driver, dev=dev)]
    assert names == ["nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"]


def test_a_missing_or_closed_node_is_named(driver: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="nvidia3"):
        nodes(UUID, driver=driver, dev=tmp_path)
    for name in ("nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o440 if name == "nvidia-uvm" else 0o666)
    with pytest.raises(Refused, match=r"may not use .*/nvidia-uvm;"):
        nodes(UUID, driver=driver, dev=tmp_path)


def test_the_library_is_found_where_it_is_loaded_from() -> None:
    assert library_folders(MAPS) == [Path("/usr/local/nvidia/lib64")]
    assert library_folders("") == []


def test_packages_are_found_in_the_order_of_the_path(tmp_path: Path) -> None:
    site, added = tmp_path / "site-packages", tmp_path / "site-packages" / "dsl" / "python"
    (site / "torch-2.dist-info").mkdir(parents=True)
    added.mkdir(parents=True)
    (tmp_path / "project").mkdir()
    path = ["", str(tmp_path / "project"), str(added), str(site), str(tmp_path / "not there")]
    assert site_folders(path) == [added, site]
