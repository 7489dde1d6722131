"""NOTES.md of a problem: what the workers whose trees were merged wanted those after them to know.

A worker writes into its own branch whatever it likes. On its way to the others it becomes a quotation below
its name, of limited length, so that no worker can speak to another as if it were the protocol.
"""

from __future__ import annotations

from swarm.foreign import MARK, quoted

TITLE = "# Notes"
NOTES_CHARS = 16_000
"""Of all quotations together; the oldest go first."""


def merged_notes(before: str, handed: str, worker: str, commit: str) -> bytes:
    """Return the notes of the problem after a merge: those `before`, and what is new in the `handed` ones."""
    lines = (line.rstrip() for line in handed.split("\n"))
    own = [line for line in lines if line != TITLE and not line.startswith(">") and not line.endswith(MARK)]
    sections = _sections(before)
    if any(own):
        sections.append(quoted(f"{worker}, commit {commit[:12]}", "\n".join(own)))
    while sum(map(len, sections)) > NOTES_CHARS:
        del sections[0]
    return ("\n\n".join([TITLE, *sections]) + "\n").encode()


def _sections(notes: str) -> list[str]:
    """Return the quotations of a problem's notes, each with the line above it; nothing else is kept."""
    found: list[list[str]] = []
    for line in notes.split("\n"):
        if line.endswith(MARK) and not line.startswith(">"):
            found.append([line])
        elif found and line.startswith(">"):
            found[-1].append(line)
    return ["\n".join(lines) for lines in found]
