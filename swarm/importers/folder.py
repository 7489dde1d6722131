"""Put the files of one problem into problems/<name>/: all or none, and never over what is different."""

from __future__ import annotations

import errno
import shutil
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from swarm.durable import ABANDONED_AFTER_S, TEMP_PREFIX, TEMP_SUFFIX, refusal
from swarm.errors import Refused
from swarm.problem import SETTINGS_FILE
from swarm.schema import decode
from swarm.settings import marked


class Outcome(StrEnum):
    """What became of one problem's files."""

    NEW = "new"
    UNCHANGED = "unchanged"
    """It was there already, with the same content."""
    REPLACED = "replaced"


def put(problems: Path, name: str, files: Mapping[str, bytes], *, force: bool = False) -> Outcome:
    """Make problems/<name>/ hold `files` (by path in it); Refused if it holds others, unless `force`.

    Files beside them stay: seeds and a baseline that were added do not make a problem another one, nor does
    the mark of a weak one. The folder appears by one rename: whoever is interrupted leaves whole problems.
    """
    target = problems / name
    if target.is_dir():
        different = _different(target, files)
        if not different:
            return Outcome.UNCHANGED
        if not force:
            raise Refused(
                f"is there already, and {different} differs",
                where=f"problems/{name}",
                remedy="--force replaces it; files of yours beside it stay",
            )
    temp = problems / f"{TEMP_PREFIX}{uuid.uuid4().hex}{TEMP_SUFFIX}"
    try:
        if target.is_dir():
            shutil.copytree(target, temp)
        for path, data in files.items():
            (temp / path).parent.mkdir(parents=True, exist_ok=True)
            (temp / path).write_bytes(data)
        return _move(temp, target)
    except OSError as error:
        refused = refusal(error, str(target), "cannot write")
        raise (refused or error) from None
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def sweep(problems: Path) -> None:
    """Remove what killed imports left."""
    for temp in problems.glob(f"{TEMP_PREFIX}*{TEMP_SUFFIX}/"):
        with suppress(FileNotFoundError):
            if time.time() - temp.stat().st_mtime > ABANDONED_AFTER_S:
                shutil.rmtree(temp, ignore_errors=True)


def _different(folder: Path, files: Mapping[str, bytes]) -> str:
    """Return the first of `files` that the folder has not, or not like this; empty if it has all."""
    for path, data in files.items():
        try:
            there = (folder / path).read_bytes()
        except OSError:
            return path
        if path == SETTINGS_FILE:
            there = marked(decode(there, str(folder / path)), False).encode()
        if there != data:
            return path
    return ""


def _move(temp: Path, target: Path) -> Outcome:
    """Rename `temp` to `target`; what is there goes first, and comes back if the new one cannot."""
    if not target.is_dir():
        try:
            temp.rename(target)
            return Outcome.NEW
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise Refused(
                "another import has just made it", where=f"problems/{target.name}", remedy="start again"
            ) from None
    old = temp.with_name(f"{TEMP_PREFIX}{uuid.uuid4().hex}{TEMP_SUFFIX}")
    target.rename(old)
    try:
        temp.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
    return Outcome.REPLACED
