"""What an import does not take over, or makes up: said once for all problems that it is true of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UNKNOWN = "unknown field"
MISSPELT = "tolerance.required_match_ratio"
AS_OFFICIAL = (
    f"{MISSPELT} is a misspelling of required_matched_ratio, which SOL-ExecBench ignores too: "
    "0.99 stays in force"
)


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that is to be known about some problems."""

    text: str
    problems: int
    places: int
    """Lines of workloads; or as many as problems, if it is about a file."""


@dataclass(slots=True)
class Remarks:
    """Remarks by their text; the order is that of their first appearance."""

    _places: dict[str, list[int]] = field(default_factory=dict)

    def add(self, counts: Mapping[str, int]) -> None:
        """Add what is remarked of one problem: the text, and of how many places in it that is true."""
        for text, count in counts.items():
            places = self._places.setdefault(text, [])
            places.append(count)

    def all(self) -> list[Remark]:
        return [Remark(text, len(places), sum(places)) for text, places in self._places.items()]


def of_unknown_field(note: str) -> str:
    """Return the remark about an unknown field, as `swarm.schema` notes it: `where: field: what; remedy`."""
    field_name = note.partition(f": {UNKNOWN}")[0].rpartition(": ")[2]
    return AS_OFFICIAL if field_name == MISSPELT else f"{field_name} is not kept: it has no meaning here"
