"""The SOL score of one commit, for the trailers of a merge."""

from __future__ import annotations

import logging
from statistics import fmean

from swarm.baseline import load_baseline
from swarm.errors import BadInput
from swarm.hub import Hub
from swarm.layout import RunRoot
from swarm.ledger import Ledger
from swarm.report.scoreboard import scores_of
from swarm.verdict import verdict_key

log = logging.getLogger(__name__)


def score_of(
    root: RunRoot, hub: Hub, ledger: Ledger, device_model: str, problem: str, commit: str
) -> float | None:
    """Return S of the commit's tree; None if baseline or verdict is missing, or S is undefined."""
    try:
        baseline = load_baseline(root, device_model, problem)
    except BadInput as error:  # the report says so, too; a merge need not wait for it
        log.warning("%s", error)
        return None
    one = next((s for s in hub.commits(problem) if s.commit == commit), None)
    if baseline is None or one is None:
        return None
    verdict = ledger.verdict(problem, verdict_key(one.tree, one.epoch, device_model))
    scores = scores_of(verdict, baseline.times_us) if verdict is not None else {}
    return fmean(scores.values()) if scores else None
