"""Which commits of a problem belong to its current epoch, and who made them; kept in memory, never on disk.

Commits never change, so a walk stops where an earlier one has been. The mainline (first parents of the
problem branch) is the planner's alone: an epoch's trailer is believed there and nowhere else.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from swarm.errors import BadInput
from swarm.git import Repo
from swarm.gitobjects import EMPTY_TREE, CommitInfo
from swarm.hub.trees import SOLUTION
from swarm.layout import WorkBranch, problem_ref

log = logging.getLogger(__name__)

EPOCH_TRAILER = "Epoch"
NUMBER_TRAILER = "Epoch-Number"


@dataclass(frozen=True, slots=True)
class Epoch:
    """The newest freezing of a problem's files; `number` counts from 1."""

    hash: str
    commit: str
    number: int


@dataclass(frozen=True, slots=True)
class Submission:
    """One commit of the current epoch. `branch` is None for the planner's own commits."""

    commit: str
    problem: str
    branch: WorkBranch | None
    tree: str
    """Id of the solution/ tree; git's empty tree if there is none."""
    epoch: str
    """Hash of the epoch it belongs to."""
    subject: str
    trailers: Mapping[str, str]
    parents: tuple[str, ...]
    committed_s: int


@dataclass(slots=True)
class History:
    """What has been read of one problem so far."""

    repo: Repo
    problem: str
    epoch: Epoch | None = None
    mainline: set[str] = field(default_factory=set)
    """First parents of the problem branch, back to the epoch."""
    belongs: dict[str, bool] = field(default_factory=dict)
    """Every commit seen: does it descend from the epoch's?"""
    owners: dict[str, WorkBranch] = field(default_factory=dict)
    submissions: list[Submission] = field(default_factory=list)
    """In an order in which parents precede their children."""

    def update(self, head: str, work: Mapping[WorkBranch, str]) -> None:
        """Read what is new below the head of the problem and of its work branches."""
        infos: dict[str, CommitInfo] = {}
        self._follow_mainline(head, infos)
        assert self.epoch is not None
        fresh: list[str] = []
        finders: dict[str, WorkBranch] = {}
        self._walk(head, self.epoch.commit, infos, fresh)
        for branch, tip in work.items():
            known = len(fresh)
            try:
                self._walk(tip, self.epoch.commit, infos, fresh)
            except BadInput as error:  # somebody moved the branch with a git of his own
                log.warning("%s is left aside: %s", branch.ref, error)
                self.belongs[tip] = False
            finders |= dict.fromkeys(fresh[known:], branch)
            self._claim(branch, tip, infos)
        for sha in fresh:
            if sha in finders and sha not in self.mainline:
                self.owners.setdefault(sha, finders[sha])  # merged into a branch: no less a worker's for that
            if sha in self.mainline or sha in self.owners:
                self.submissions.append(self._submission(infos[sha], self.epoch.hash))

    def _follow_mainline(self, head: str, infos: dict[str, CommitInfo]) -> None:
        sha, newer = head, []
        while sha not in self.mainline:
            info = infos[sha] = self.repo.commit(sha)
            newer.append(sha)
            if epoch := _epoch_of(info):
                self.epoch, self.mainline = epoch, set()
                self.belongs, self.owners, self.submissions = {}, {}, []
                break
            if not info.parents:
                raise BadInput(f"{problem_ref(self.problem)} holds no epoch", where=str(self.repo.git_dir))
            sha = info.parents[0]
        self.mainline.update(newer)

    def _walk(self, tip: str, epoch: str, infos: dict[str, CommitInfo], fresh: list[str]) -> None:
        """Add the commits at and below `tip` that are new and belong to `fresh`, parents first."""
        stack = [tip]
        while stack:
            sha = stack[-1]
            if sha in self.belongs:
                stack.pop()
                continue
            info = infos[sha] = infos.get(sha) or self.repo.commit(sha)
            unseen = [parent for parent in info.parents if parent not in self.belongs]
            if unseen and sha != epoch:
                stack.extend(reversed(unseen))
                continue
            stack.pop()
            self.belongs[sha] = sha == epoch or any(self.belongs[parent] for parent in info.parents)
            if self.belongs[sha]:
                fresh.append(sha)

    def _claim(self, branch: WorkBranch, tip: str, infos: dict[str, CommitInfo]) -> None:
        """Name `branch` as the owner of its own commits: its first parents down to what others own."""
        sha = tip
        while self.belongs[sha] and sha not in self.mainline and sha not in self.owners:
            self.owners[sha] = branch
            info = infos.get(sha) or self.repo.commit(sha)
            if not info.parents:
                return
            sha = info.parents[0]

    def _submission(self, info: CommitInfo, epoch: str) -> Submission:
        return Submission(
            commit=info.sha,
            problem=self.problem,
            branch=self.owners.get(info.sha),
            tree=self._solution_tree(info),
            epoch=epoch,
            subject=info.message.subject,
            trailers=info.message.trailers,
            parents=info.parents,
            committed_s=info.committed_s,
        )

    def _solution_tree(self, info: CommitInfo) -> str:
        try:
            solution = self.repo.entries(info.tree).get(SOLUTION)
        except BadInput:
            return info.tree  # whoever asks for its files is told what is wrong
        return solution.sha if solution else EMPTY_TREE


def _epoch_of(info: CommitInfo) -> Epoch | None:
    trailers = info.message.trailers
    number = trailers.get(NUMBER_TRAILER, "")
    if EPOCH_TRAILER not in trailers or not re.fullmatch(r"[0-9]{1,9}", number):
        return None
    return Epoch(trailers[EPOCH_TRAILER], info.sha, int(number))
