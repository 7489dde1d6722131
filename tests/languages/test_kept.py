"""What a cache holds is what was put there, or it is made again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from swarm.languages.kept import keep

FILES = {"kernel.py": b"x = 1\n", "deep/part.py": b"y = 2\n"}


def test_a_folder_is_made_once_and_named_by_its_content(tmp_path: Path) -> None:
    folder = keep(FILES, tmp_path)
    written = (folder / "kernel.py").stat().st_mtime_ns
    assert keep(dict(reversed(FILES.items())), tmp_path) == folder
    assert (folder / "kernel.py").stat().st_mtime_ns == written
    assert keep(FILES | {"kernel.py": b"x = 3\n"}, tmp_path) != folder
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".tmp-")) == []


@pytest.mark.parametrize("damage", ["emptied", "removed"])
def test_a_damaged_folder_is_made_again(damage: str, tmp_path: Path) -> None:
    folder = keep(FILES, tmp_path)
    if damage == "emptied":
        (folder / "kernel.py").write_bytes(b"")
    else:
        shutil.rmtree(folder / "deep")
    assert keep(FILES, tmp_path) == folder
    assert (folder / "kernel.py").read_bytes() == FILES["kernel.py"]
    assert (folder / "deep" / "part.py").read_bytes() == FILES["deep/part.py"]
