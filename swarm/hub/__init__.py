"""Branches and worktrees of one run."""

from swarm.hub.branches import Branch
from swarm.hub.history import Epoch, Submission
from swarm.hub.hub import HandIn, Hub
from swarm.hub.trees import NOTES, SOLUTION, epoch_hash, is_editable, is_frozen

__all__ = [
    "NOTES",
    "SOLUTION",
    "Branch",
    "Epoch",
    "HandIn",
    "Hub",
    "Submission",
    "epoch_hash",
    "is_editable",
    "is_frozen",
]
