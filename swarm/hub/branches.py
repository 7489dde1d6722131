"""What the branches say now: heads and histories, cached while the folders of the refs have not changed.

Git alone lists the refs. The file times of the ref folders and of packed-refs only tell that a listing is
still good: git creates a lock file beside a ref whenever it moves one, which changes its folder's time.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from swarm.errors import BadInput
from swarm.git import Repo
from swarm.hub.history import History
from swarm.layout import PROBLEM_REFS, WORK_REFS, WorkBranch, parse_ref
from swarm.stamps import settled_stamp, stamp


@dataclass(frozen=True, slots=True)
class Branch:
    """A work branch and the commit at its head."""

    work: WorkBranch
    head: str


@dataclass(slots=True)
class Heads:
    """The branches of one problem."""

    champion: str | None = None
    work: dict[WorkBranch, str] = field(default_factory=dict)


class Branches:
    """A cached view of all branches of one repository."""

    def __init__(self, repo: Repo) -> None:
        self._repo = repo
        self._heads: dict[str, Heads] = {}
        self._stamps: dict[Path, int] = {}
        self._histories: dict[str, tuple[Heads, History]] = {}

    def all(self) -> dict[str, Heads]:
        """Return the branches of every problem, as of now."""
        if not self._stamps or any(stamp(path) != time_ns for path, time_ns in self._stamps.items()):
            self._list()
        return self._heads

    def heads(self, problem: str) -> Heads:
        """Return the branches of one problem, as of now; BadInput if it has none."""
        known = self._stamps
        if not known or any(known.get(path, 0) != stamp(path) for path in self._folders(problem)):
            self._list()
        found = self._heads.get(problem)
        if found is None or found.champion is None:
            raise BadInput(f"there is no problem {problem!r} in this run", where=str(self._repo.git_dir))
        return found

    def history(self, problem: str) -> History:
        """Return what the current epoch of one problem holds, as of now."""
        heads = self.heads(problem)
        seen, history = self._histories.pop(problem, (None, History(self._repo, problem)))
        if seen is not heads and seen != heads:
            assert heads.champion is not None
            history.update(heads.champion, heads.work)  # if it raises, the half-read history is dropped
        self._histories[problem] = heads, history
        return history

    def forget(self) -> None:
        """Look again next time: this process itself has just moved a ref."""
        self._stamps = {}

    def _list(self) -> None:
        git = self._repo.git_dir
        paths = [git / "packed-refs", git / PROBLEM_REFS, git / WORK_REFS]
        with suppress(FileNotFoundError):
            paths.extend((git / WORK_REFS).iterdir())
        stamps = {path: settled_stamp(path) for path in paths}
        heads: dict[str, Heads] = {}
        for ref, sha in self._repo.refs(PROBLEM_REFS, WORK_REFS).items():
            match parse_ref(ref):
                case str(problem):
                    heads.setdefault(problem, Heads()).champion = sha
                case WorkBranch() as branch:
                    heads.setdefault(branch.problem, Heads()).work[branch] = sha
        self._heads, self._stamps = heads, stamps

    def _folders(self, problem: str) -> tuple[Path, ...]:
        git = self._repo.git_dir
        return git / "packed-refs", git / PROBLEM_REFS, git / WORK_REFS / problem
