"""Names of a problem as identifiers of C++: most are that already."""

from __future__ import annotations

import re

PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
        alignas alignof and and_eq asm assert auto bitand bitor bool break case catch char char16_t char32_t
        char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr constinit
        continue decltype default delete do double dynamic_cast else enum errno explicit export extern false
        final float for friend goto if inline int int64_t linux long mutable namespace new noexcept not not_eq
        nullptr operator or or_eq override private protected public register reinterpret_cast requires
        return run short signed sizeof static static_assert static_cast std stderr stdin stdout struct switch
        template this thread_local throw true try typedef typeid typename union unix unsigned using virtual
        void volatile wchar_t while xor xor_eq at c10 map swarm torch NULL EOF CUtensorMap cudaStream_t
        """,
    )
)
"""Words of the language, and names that the code around uses unqualified."""


class CppNames:
    """Spells names: one always the same, two never alike. What starts with `swarm_` is ours."""

    def __init__(self) -> None:
        self._spelt: dict[tuple[str, str], str] = {}

    def spell(self, kind: str, name: str, prefix: str = "") -> str:
        """Return the identifier of the `kind` of thing that is called `name`."""
        if (kind, name) not in self._spelt:
            wanted = f"{prefix}{name}"
            is_good = PLAIN.fullmatch(wanted) and wanted not in RESERVED and not wanted.startswith("swarm_")
            stem = spelt = wanted if is_good else "name_" + re.sub(r"\W", "", wanted, flags=re.ASCII)
            taken = set(self._spelt.values())
            count = 0
            while spelt in taken:
                count += 1
                spelt = f"{stem}_{count}"
            self._spelt[kind, name] = spelt
        return self._spelt[kind, name]
