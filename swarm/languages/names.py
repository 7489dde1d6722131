"""Values of a plan's expressions, with mistakes that say which numbers they were computed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from swarm import expressions
from swarm.errors import BadInput
from swarm.expressions import Number

MAX_WORK = 50_000
"""Of one plan for one call, in values and each `CHARS` of their expressions: a plan takes a moment."""
CHARS = 8
SHOWN_CHARS = 60


class Names:
    """What names mean at one place of a plan."""

    def __init__(
        self,
        values: Mapping[str, Number],
        calls: expressions.Calls = expressions.NO_CALLS,
        spent: list[int] | None = None,
    ) -> None:
        self._values = values
        self._calls = calls
        self._spent = [0] if spent is None else spent

    def asking(self, calls: Mapping[str, Callable[[str], Number]]) -> Names:
        """Return these names with functions of kernels."""
        return Names(self._values, calls, self._spent)

    def having(self, name: str, value: Number) -> Names:
        """Return these names and one more."""
        return Names({**self._values, name: value}, self._calls, self._spent)

    def guessing(self, values: Mapping[str, Number]) -> Names:
        """Return these names and stand-ins for those that have no value."""
        return Names({**values, **self._values}, self._calls, self._spent) if values else self

    def number(self, text: str, where: str) -> Number:
        self._spent[0] += 1 + len(text) // CHARS
        if self._spent[0] > MAX_WORK:
            raise BadInput(
                "a call needs too many values", where=where, remedy="repeat less often, or write less"
            )
        try:
            return expressions.evaluate(text, self._values, calls=self._calls)
        except BadInput as error:
            told = self.told(text)
            what = f"{error.what} {told}" if told else error.what
            raise BadInput(what, where=error.where or where, remedy=error.remedy) from None

    def integer(self, text: str, where: str) -> int:
        value = self.number(text, where)
        if value != int(value):
            raise self._wrong(text, f"is {value}, not an integer", where, "use // or ceildiv")
        return int(value)

    def natural(self, text: str, where: str) -> int:
        """Return an integer that is not negative."""
        value = self.integer(text, where)
        if value < 0:
            raise self._wrong(text, f"is {value}", where, "it must be 0 or more")
        return value

    def positive(self, text: str, where: str) -> int:
        value = self.integer(text, where)
        if value < 1:
            raise self._wrong(
                text, f"is {value}", where, "it must be 1 or more; `when` can leave the step out"
            )
        return value

    def told(self, *texts: str) -> str:
        """Say what the names in `texts` stand for."""
        needed: set[str] = set()
        for text in texts:
            needed |= expressions.free_names(text, calls=self._calls)
        pairs = [
            f"{name} = {_cut(str(self._values[name]))}" for name in sorted(needed) if name in self._values
        ]
        return f"with {', '.join(pairs[:8])}" if pairs else ""

    def _wrong(self, text: str, what: str, where: str, remedy: str) -> BadInput:
        return BadInput(f"{_cut(text)!r} {what} {self.told(text)}".rstrip(), where=where, remedy=remedy)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
