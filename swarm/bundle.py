"""A bundle: what is to be measured on a host that has neither a network nor the repository, as one file.

A zip of `bundle.json` and of every file once, under the hash of its content. What comes out of `read` has
been checked as the work of a stranger; what goes in is `swarm.pending`'s, what becomes of it `swarm.away`'s.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from swarm.durable import write_atomic
from swarm.errors import BadInput
from swarm.job import Job, Purpose, Tree
from swarm.layout import NAME, check_name
from swarm.parcel import UNREADABLE
from swarm.planner.facts import ProblemFacts
from swarm.records import is_time
from swarm.requests import COMMIT, ID, Request
from swarm.verdict import Status, verdict_key

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FORMAT = 1
"""Raised by hand when the file changes; the two hosts then need the same version of swarm."""
MANIFEST = "bundle.json"
MAX_MANIFEST_BYTES = 256 << 20
MAX_FILE_BYTES = 1 << 30
MAX_TOTAL_BYTES = 4 << 30
MAX_BASELINE_S = 7 * 86_400.0
MEMBER = re.compile(r"files/[0-9a-f]{64}")
EPOCH = re.compile(r"[0-9a-f]{16,64}")
NO_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Part:
    """One problem of a bundle: the planner's facts, and the files that jobs on it need."""

    facts: ProblemFacts
    epoch: str
    problem_files: dict[str, bytes]
    trees: dict[str, Tree]
    """By id: the champion, what has no verdict, and what may be compared."""
    pending: tuple[str, ...]
    """Trees without a verdict, the most urgent first."""
    wanted: tuple[Request, ...]
    """Comparisons that the planner has asked for already."""

    def verdict_job(self, tree: str, device_model: str) -> Job:
        key = verdict_key(tree, self.epoch, device_model)
        name = self.facts.name
        return Job(key, Purpose.VERDICT, name, self.epoch, self.problem_files, self.trees[tree])

    def comparison_job(self, comparison_id: str, champion: str, candidate: str) -> Job:
        """Return the job that compares two trees; KeyError if one of them is not in the bundle."""
        return Job(
            comparison_id,
            Purpose.COMPARISON,
            self.facts.name,
            self.epoch,
            self.problem_files,
            self.trees[candidate],
            self.trees[champion],
        )


@dataclass(frozen=True, slots=True)
class Bundle:
    run: str
    judge_version: int
    device_model: str | None
    """Whose verdicts are missing; None: whatever device it is opened on."""
    created_s: float
    parts: tuple[Part, ...]
    baselines: tuple[str, ...] = ()
    """Problems that no baseline of the device model is on file for."""
    baseline_s: float = 0.0
    """Seconds that measuring these may take together."""


@dataclass(frozen=True, slots=True)
class _TreeEntry:
    sha: str
    commit: str
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class _PartEntry:
    facts: ProblemFacts
    epoch: str
    problem_files: dict[str, str]
    trees: tuple[_TreeEntry, ...]
    pending: tuple[str, ...]
    wanted: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class _Manifest:
    """bundle.json; files by the hash of their content."""

    format: int
    run: str
    judge_version: int
    device_model: str | None
    created_s: float
    baselines: tuple[str, ...]
    baseline_s: float
    parts: tuple[_PartEntry, ...]


def write(path: Path, bundle: Bundle) -> None:
    """Put `bundle` at `path`, whole or not at all."""
    blobs: dict[str, bytes] = {}
    manifest = _Manifest(
        FORMAT,
        bundle.run,
        bundle.judge_version,
        bundle.device_model,
        bundle.created_s,
        bundle.baselines,
        bundle.baseline_s,
        tuple(_entry(part, blobs) for part in bundle.parts),
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        _add(file, MANIFEST, _adapter().dump_json(manifest))
        for digest, data in sorted(blobs.items()):
            _add(file, f"files/{digest}", data)
    write_atomic(path, buffer.getvalue())


def read(path: Path) -> Bundle:
    """Return the bundle at `path`; BadInput if it is none, was cut short or does not hold together."""
    from pydantic import ValidationError

    where = str(path)
    try:
        with zipfile.ZipFile(path) as file:
            manifest = _adapter().validate_json(_member(file, MANIFEST, MAX_MANIFEST_BYTES, where))
            blobs = _blobs(file, where)
    except FileNotFoundError:
        raise BadInput("there is no such file", where=where, remedy="name a bundle") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or MANIFEST
        raise _broken(f"{place}: {first['msg']}", where) from None
    except UNREADABLE as error:
        raise _broken(str(error) or type(error).__name__, where) from None
    if manifest.format != FORMAT:
        raise BadInput(
            f"a bundle of format {manifest.format}, and this swarm reads {FORMAT}",
            where=where,
            remedy="use the same version of swarm on both hosts",
        )
    return _checked(manifest, blobs, where)


def _entry(part: Part, blobs: dict[str, bytes]) -> _PartEntry:
    def kept(files: Mapping[str, bytes]) -> dict[str, str]:
        names = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        blobs.update((digest, files[name]) for name, digest in names.items())
        return names

    return _PartEntry(
        part.facts,
        part.epoch,
        kept(part.problem_files),
        tuple(_TreeEntry(tree.sha, tree.commit, kept(tree.files)) for tree in part.trees.values()),
        part.pending,
        part.wanted,
    )


def _add(file: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, NO_TIME)  # the same content makes the same bytes
    info.compress_type = zipfile.ZIP_DEFLATED
    file.writestr(info, data)


def _blobs(file: zipfile.ZipFile, where: str) -> dict[str, bytes]:
    names = [info.filename for info in file.infolist() if info.filename != MANIFEST]
    strange = [name for name in names if not MEMBER.fullmatch(name)]
    if strange or len(set(names)) != len(names):
        raise _broken(f"it holds {(strange or names)[0][:80]!r}, which no bundle has or has once", where)
    if sum(info.file_size for info in file.infolist()) > MAX_TOTAL_BYTES:
        raise _broken(f"it unpacks to more than {MAX_TOTAL_BYTES} bytes", where)
    blobs = {}
    for name in names:
        data = _member(file, name, MAX_FILE_BYTES, where)
        digest = name.removeprefix("files/")
        if hashlib.sha256(data).hexdigest() != digest:
            raise _broken(f"{name} is not what its name says", where)
        blobs[digest] = data
    return blobs


def _member(file: zipfile.ZipFile, name: str, limit: int, where: str) -> bytes:
    try:
        info = file.getinfo(name)
    except KeyError:
        raise _broken(f"there is no {name} in it", where) from None
    with file.open(info) as member:
        data = member.read(limit + 1)
    if len(data) > limit:
        raise _broken(f"{name} is larger than {limit} bytes", where)
    return data


def _checked(manifest: _Manifest, blobs: Mapping[str, bytes], where: str) -> Bundle:
    check_name("run", manifest.run)
    names = [part.facts.name for part in manifest.parts]
    if len(set(names)) != len(names):
        raise _broken("a problem is in it twice", where)
    for name in (*names, *manifest.baselines):
        check_name("problem", name)
    if manifest.device_model is not None and not NAME.fullmatch(manifest.device_model):
        raise _broken("its device model is not a name", where)
    if not 0 <= manifest.baseline_s <= MAX_BASELINE_S:
        raise _broken(f"its time for baselines is {manifest.baseline_s} s", where)
    return Bundle(
        manifest.run,
        manifest.judge_version,
        manifest.device_model,
        manifest.created_s,
        tuple(_part(entry, blobs, where) for entry in manifest.parts),
        tuple(name for name in manifest.baselines if name in names),
        manifest.baseline_s,
    )


def _part(entry: _PartEntry, blobs: Mapping[str, bytes], where: str) -> Part:
    name = entry.facts.name

    def fetched(files: Mapping[str, str]) -> dict[str, bytes]:
        try:
            return {path: blobs[digest] for path, digest in files.items()}
        except KeyError as error:
            raise _broken(f"{name} lacks the file {error}", where) from None

    trees = {tree.sha: Tree(tree.sha, tree.commit, fetched(tree.files)) for tree in entry.trees}
    part = Part(entry.facts, entry.epoch, fetched(entry.problem_files), trees, entry.pending, entry.wanted)
    fault = _fault(part)
    if fault:
        raise _broken(f"{name}: {fault}", where)
    return part


def _fault(part: Part) -> str:
    """Say what does not hold together in a part; empty if nothing."""
    facts = part.facts
    known = {trial.tree: trial.commit for trial in facts.trials}
    if not EPOCH.fullmatch(part.epoch):
        return "its epoch has no hash for a name"
    hashes = [*known, *known.values(), *part.trees, *(tree.commit for tree in part.trees.values())]
    if not all(map(COMMIT.fullmatch, hashes)):
        return "a commit or a tree has no hash for a name"
    if facts.champion_tree not in known or not part.trees.keys() <= known.keys():
        return "it holds a tree that is no trial's"
    if facts.champion not in known.values():
        return "its champion is no trial's commit"
    if not {facts.champion_tree, *part.pending} <= part.trees.keys():
        return "the files of the champion or of a pending tree are missing"
    if len(set(part.pending)) != len(part.pending) or len({one.id for one in part.wanted}) != len(
        part.wanted
    ):
        return "something is wanted twice"
    return _figures_fault(facts) or _request_fault(part.wanted, part)


def _figures_fault(facts: ProblemFacts) -> str:
    """Say what cannot have been measured; the policy takes its facts at their word."""
    found: dict[str, tuple[Status | None, float | None]] = {}
    for trial in facts.trials:
        if found.setdefault(trial.tree, (trial.status, trial.time_us)) != (trial.status, trial.time_us):
            return f"tree {trial.tree[:12]} has two results"
        if not math.isfinite(trial.at_s) or not (trial.time_us is None or is_time(trial.time_us)):
            return f"a figure of commit {trial.commit[:12]} is none"
        if (trial.status is Status.PASSED) != (trial.time_us is not None):
            return f"commit {trial.commit[:12]} is {trial.status} with a time of {trial.time_us}"
    if not all(match.ratio is None or is_time(match.ratio) for match in facts.matches):
        return "a ratio is none"
    return ""


def _request_fault(wanted: Iterable[Request], part: Part) -> str:
    commits = {trial.commit for trial in part.facts.trials}
    for request in wanted:
        if request.problem != part.facts.name or not ID.fullmatch(request.id):
            return f"the request {request.id[:40]!r} is none"
        if not {request.champion, request.candidate} <= commits:
            return f"the request {request.id} is about a commit that is not in it"
    return ""


def _broken(what: str, where: str) -> BadInput:
    return BadInput(
        f"not a sound bundle: {what}", where=where, remedy="make it again: swarm pending --bundle"
    )


@cache
def _adapter() -> TypeAdapter[_Manifest]:
    from pydantic import TypeAdapter  # 60 ms that importing the module should not cost

    return TypeAdapter(_Manifest)
