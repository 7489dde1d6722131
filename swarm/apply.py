"""Carries the planner's decisions out; the only module that merges.

Every decision is one step that is done or not done: a ref moved by compare-and-swap, or a create-only file.
Carried out twice, it changes nothing the second time; interrupted, it is decided again from what is there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from swarm.errors import BadInput, Raced
from swarm.hub import Hub
from swarm.layout import RunPaths, WorkBranch
from swarm.messages import format_message
from swarm.planner.decisions import Assign, Decision, Merge, Reassign, RequestComparison, Retire, Wait
from swarm.protocol import Output
from swarm.requests import Request, ask

log = logging.getLogger(__name__)

SolScore = Callable[[str, str], float | None]
"""(problem, commit) -> the score S of the commit's tree, None if it is undefined or not known."""


def apply(
    decision: Decision, paths: RunPaths, hub: Hub, output: Output, sol_score: SolScore
) -> WorkBranch | None:
    """Do what `decision` says; return the branch that it gave to a worker, if it did."""
    match decision:
        case Assign() | Reassign():
            return _assign(decision, hub)
        case Merge():
            _merge(decision, hub, output, sol_score)
        case RequestComparison():
            request = Request(decision.id, decision.problem, decision.champion, decision.candidate)
            if ask(paths, request):
                log.info("%s: compare %s: %s", decision.problem, decision.candidate[:8], decision.reason)
        case Retire():
            log.info("%s leaves %s: %s", decision.worker, decision.previous.problem, decision.reason)
        case Wait():
            log.debug("waiting: %s", decision.reason)
    return None


def _assign(decision: Assign | Reassign, hub: Hub) -> WorkBranch | None:
    newest = hub.assignment(decision.worker)
    if (newest.work if newest is not None else None) != decision.previous:
        return None  # it was carried out before the planner was interrupted
    try:
        branch = hub.assign(decision.problem, decision.worker)
    except (Raced, BadInput) as error:  # a broken problem, or a ref that somebody put in the way
        log.warning("%s: not assigned to %s: %s", decision.problem, decision.worker, error)
        return None
    log.info("%s works on %s: %s", decision.worker, decision.problem, decision.reason)
    return branch


def _merge(decision: Merge, hub: Hub, output: Output, sol_score: SolScore) -> None:
    candidate = next((s for s in hub.commits(decision.problem) if s.commit == decision.candidate), None)
    if candidate is None:
        log.warning("%s: not merged: the problem has a new epoch", decision.problem)
        return
    score = sol_score(decision.problem, decision.candidate)
    trailers = {
        "Speedup": "" if decision.speedup is None else f"{decision.speedup:.3f}",
        "SOL-Score": "" if score is None else f"{score:.3f}",
        "Comparison": ", ".join(decision.comparisons),
        "Worker": candidate.branch.worker if candidate.branch is not None else "",
        **{key: candidate.trailers.get(key, "") for key in ("Agent", "Model", "Cost")},
    }
    body = f"{decision.reason[0].upper()}{decision.reason[1:]}."
    message = format_message(f"Merge: {candidate.subject}", body, output.trailing(trailers))
    try:
        hub.merge(decision.problem, decision.candidate, decision.champion, message)
    except (Raced, BadInput) as error:  # the next decision sees why
        log.warning("%s: not merged: %s", decision.problem, error)
        return
    log.info("%s: merged %s: %s", decision.problem, decision.candidate[:8], decision.reason)
