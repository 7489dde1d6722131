"""Results on their way home: a folder laid out like a run root, or a zip of it, that says whose they are.

Writing is the sitting's; whoever reads treats names, sizes and contents as a stranger's.
"""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from swarm.durable import create_only, write_atomic
from swarm.errors import BadInput, Refused
from swarm.layout import NAME, RunRoot

ORIGIN = "origin.json"
ARCHIVE = "results.zip"
RESULTS = "results"
MAX_FILE_BYTES = 1 << 20
"""A record is under 8 KB, and one with many workloads a few times that."""
MAX_FILES = 1_000_000
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)
"""What reading a zip that somebody made or broke can raise."""
NO_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Origin:
    """Which run the results are for, and what judged."""

    run: str
    judge_version: int
    device_model: str


class Parcel(Protocol):
    """Results that came from elsewhere, by the names they have below the folder."""

    @property
    def names(self) -> Sequence[str]: ...

    def read(self, name: str) -> bytes:
        """Return a file's content; BadInput if it is too large to be a record."""


def claim(root: RunRoot, origin: Origin) -> None:
    """Write down whose results the folder holds; Refused if it holds others."""
    path = root.path / ORIGIN
    if create_only(path, json.dumps(asdict(origin), indent=1).encode() + b"\n"):
        return
    there = parse_origin(path.read_bytes(), str(path))
    if there != origin:
        raise Refused(
            f"the folder holds results of run {there.run!r} on {there.device_model}, "
            f"judge version {there.judge_version}",
            where=str(root.path),
            remedy="name another folder",
        )


def pack(root: RunRoot) -> Path:
    """Put origin and results into one file beside them and return it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name in _walk(root.path):
            info = zipfile.ZipInfo(name, NO_TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(info, (root.path / name).read_bytes())
    archive = root.path / ARCHIVE
    write_atomic(archive, buffer.getvalue())
    return archive


@contextmanager
def opened(path: Path) -> Iterator[Parcel]:
    """Give the parcel at `path`, folder or file; BadInput if there is none."""
    if path.is_dir():
        yield _Folder(path)
        return
    if not path.exists():
        raise BadInput("there is no such file or folder", where=str(path), remedy="name what bench wrote")
    try:
        file = zipfile.ZipFile(path)
    except UNREADABLE as error:
        raise BadInput(f"not results: {error}", where=str(path), remedy=f"name {ARCHIVE}") from None
    with file:
        yield _Zip(path, file)


def origin_of(parcel: Parcel, where: str) -> Origin:
    """Return whose results a parcel holds; BadInput if it does not say."""
    if ORIGIN not in parcel.names:
        raise BadInput(
            f"no {ORIGIN} in it", where=where, remedy="name the folder given to `swarm bench --out`"
        )
    return parse_origin(parcel.read(ORIGIN), f"{where}/{ORIGIN}")


def parse_origin(data: bytes, where: str) -> Origin:
    try:
        raw = json.loads(data)
        origin = Origin(str(raw["run"]), int(raw["judge_version"]), str(raw["device_model"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(f"not an origin: {error!r}", where=where, remedy="bring the results again") from None
    if not NAME.fullmatch(origin.run) or not NAME.fullmatch(origin.device_model):
        raise BadInput("its run or device model is not a name", where=where, remedy="bring them again")
    return origin


@dataclass(frozen=True, slots=True)
class _Folder:
    path: Path

    @property
    def names(self) -> Sequence[str]:
        return list(_walk(self.path))

    def read(self, name: str) -> bytes:
        descriptor = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return _checked(file.read(MAX_FILE_BYTES + 1), f"{self.path}/{name}")


@dataclass(frozen=True, slots=True)
class _Zip:
    path: Path
    file: zipfile.ZipFile

    @property
    def names(self) -> Sequence[str]:
        found = {info.filename for info in self.file.infolist()}
        return _limited(sorted(filter(_is_ours, found)), str(self.path))

    def read(self, name: str) -> bytes:
        where = f"{self.path}/{name}"
        try:
            with self.file.open(name) as member:
                return _checked(member.read(MAX_FILE_BYTES + 1), where)
        except UNREADABLE as error:
            raise BadInput(f"cannot be read: {error}", where=where, remedy="bring it again") from None


def _walk(root: Path) -> list[str]:
    """Return the plain files of a folder that may be results; links are none, and are not followed."""
    found = []
    for folder, folders, files in os.walk(root / RESULTS, followlinks=False):
        folders.sort()
        for name in sorted(files):
            path = Path(folder) / name
            relative = path.relative_to(root).as_posix()
            if stat.S_ISREG(path.lstat().st_mode) and _is_ours(relative):
                found.append(relative)
    if (root / ORIGIN).is_file() and not (root / ORIGIN).is_symlink():
        found.append(ORIGIN)
    return _limited(found, str(root))


def _is_ours(name: str) -> bool:
    parts = PurePosixPath(name).parts
    is_record = name.startswith(f"{RESULTS}/") and name.endswith(".json") and not parts[-1].startswith(".")
    return name == ORIGIN or (is_record and ".." not in parts and name == "/".join(parts))


def _limited(names: list[str], where: str) -> list[str]:
    if len(names) > MAX_FILES:
        raise BadInput(f"{len(names)} files", where=where, remedy=f"bring at most {MAX_FILES} at once")
    return names


def _checked(data: bytes, where: str) -> bytes:
    if len(data) > MAX_FILE_BYTES:
        raise BadInput(
            f"over {MAX_FILE_BYTES} bytes", where=where, remedy="a record is smaller; leave it out"
        )
    return data
