"""Files that are wholly there or not there, whenever the process dies or the disk fills up.

Write a temporary file in the same folder, fsync it, rename or link it into place, fsync the folder.
Who may write which file, and what is in it, is the callers' business.
"""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from swarm.errors import Refused

TEMP_PREFIX, TEMP_SUFFIX = ".tmp-", ".part"
ABANDONED_AFTER_S = 3600.0
"""No write of ours takes an hour: an older temporary file belongs to a process that was killed."""

_REFUSALS = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "raise the quota or free some space there",
    errno.EROFS: "make it writable",
    errno.EACCES: "let this user read and write it",
    errno.EPERM: "let this user read and write it",
}


def write_atomic(path: Path, data: bytes) -> None:
    """Put `data` at `path`, over whatever was there; readers see the old file or the new one."""
    with _refusing(path), _temporary(path, data) as temp:
        temp.replace(path)
        _sync_folder(path.parent)


def write_if_new(path: Path, data: bytes) -> None:
    """Put `data` at `path`, unless that is what it says already: nobody is to look at it again in vain."""
    with suppress(FileNotFoundError):
        if path.read_bytes() == data:
            return
    write_atomic(path, data)


def create_only(path: Path, data: bytes) -> bool:
    """Put `data` at `path` unless something is there; say whether this call did it."""
    with _refusing(path):
        if path.exists():  # cheap answer for the usual repetition; the link below is what decides
            return False
        with _temporary(path, data) as temp:
            try:
                os.link(temp, path)
            except FileExistsError:
                return False
            _sync_folder(path.parent)
    return True


def sweep(folder: Path) -> None:
    """Remove what killed writers left in `folder`."""
    for temp in folder.glob(f"{TEMP_PREFIX}*{TEMP_SUFFIX}"):
        with suppress(FileNotFoundError):
            if time.time() - temp.stat().st_mtime > ABANDONED_AFTER_S:
                temp.unlink()


def refusal(error: OSError, where: str | None = None, doing: str = "cannot go on") -> Refused | None:
    """Return what a person is told if disk or rights are why `error` came; None if it is another matter.

    Without `where` the error names the file itself; one about rights that names none is not about a file.
    """
    if error.errno not in _REFUSALS:
        return None
    place = where or error.filename
    if place is None and error.errno in (errno.EACCES, errno.EPERM):
        return None
    remedy = f"{_REFUSALS[error.errno]} and start again"
    if place is None:
        remedy = remedy.replace("some space there", "some space in the run root and in /tmp")
    return Refused(f"{doing}: {os.strerror(error.errno)}", where=place and str(place), remedy=remedy)


@contextmanager
def _temporary(path: Path, data: bytes) -> Iterator[Path]:
    _make_folder(path.parent)
    temp = path.parent / f"{TEMP_PREFIX}{uuid.uuid4().hex}{TEMP_SUFFIX}"
    descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            remaining = memoryview(data)
            while remaining:  # a write may be short on a nearly full disk, and the next one then fails
                remaining = remaining[file.write(remaining) :]
            os.fsync(file.fileno())
        yield temp
    finally:
        with suppress(FileNotFoundError):  # it was renamed into place
            temp.unlink()


def _make_folder(folder: Path) -> None:
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        _sync_folder(new.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        refused = refusal(error, str(path), "cannot write")
        if refused is None:
            raise
        raise refused from error
