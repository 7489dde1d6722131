"""What a hostile agent can put into a commit, made by real git on a real hub, and what must become of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.gitkit import git
from tests.support import solution

SEED = solution({"BLOCK": (1, 2, 4)}, BLOCK=1)
BEST = {"BLOCK": 4}
"""What a run from this seed ends at."""
BETTER = solution(BLOCK=3)


@dataclass(frozen=True, slots=True)
class Objects:
    """Writes objects into a hub as anybody with a git of his own can, valid or not."""

    hub: Path
    head: str
    """What the planted commits descend from."""

    def put(self, kind: str, content: bytes) -> str:
        words = ["git", f"--git-dir={self.hub}", "hash-object", "-t", kind, "-w", "--stdin", "--literally"]
        return subprocess.run(words, input=content, capture_output=True, check=True).stdout.decode().strip()

    def blob(self, content: bytes) -> str:
        return self.put("blob", content)

    def tree(self, *rows: tuple[str, bytes, str]) -> str:
        """Write (mode, name, object) as they are, in git's order, whatever git would say of the names."""
        ordered = sorted(rows, key=lambda row: row[1] + (b"/" if row[0] == "40000" else b""))
        lines = (b"%s %s\0%s" % (mode.encode(), name, bytes.fromhex(sha)) for mode, name, sha in ordered)
        return self.put("tree", b"".join(lines))

    def root(self, *rows: tuple[str, bytes, str], without: str = "") -> str:
        """Return the head's root tree with `rows` added."""
        kept = []
        for line in git(self.hub, "ls-tree", self.head).splitlines():
            mode, _, rest = line.split(" ", 2)
            sha, name = rest.split("\t")
            if name != without:
                kept.append((mode.lstrip("0"), name.encode(), sha))
        return self.tree(*kept, *rows)

    def solution(self, *rows: tuple[str, bytes, str]) -> str:
        """Return a root tree whose solution is the better one, with `rows` added to it."""
        files = [("100644", name.encode(), self.blob(data)) for name, data in BETTER.items()]
        named = {name for _, name, _ in rows}
        return self.with_solution(self.tree(*(row for row in files if row[1] not in named), *rows))

    def with_solution(self, tree: str) -> str:
        return self.root(("40000", b"solution", tree), without="solution")

    def commit(
        self,
        tree: str,
        message: str = "Plant it",
        parents: Sequence[str] = (),
        date: str = "1700000000 +0000",
    ) -> str:
        """Write a commit of mallory's, its text and date as they are."""
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents or [self.head])]
        lines += [f"author mallory <m@x> {date}", f"committer mallory <m@x> {date}", "", message]
        return self.put("commit", "\n".join(lines).encode(errors="surrogateescape"))


Plant = Callable[[Objects], str]
"""Makes a commit and returns it."""


def refused() -> dict[str, tuple[Plant, str]]:
    """Return name -> the commit, and what its refusal on file must say."""

    def in_root(mode: str, name: bytes, content: bytes = b"x") -> Plant:
        return lambda o: o.commit(o.root((mode, name, o.blob(content))))

    def inside(mode: str, name: bytes, content: bytes = b"x") -> Plant:
        return lambda o: o.commit(o.solution((mode, name, o.blob(content))))

    def link(name: bytes, target: bytes) -> Plant:
        return inside("120000", name, target)

    def submodule(o: Objects) -> str:
        modules = b'[submodule "s"]\n\tpath = s\n\turl = ext::sh -c touch% /tmp/it-ran\n'
        rows = (("100644", b".gitmodules", o.blob(modules)), ("160000", b"s", o.head))
        return o.commit(o.root(*rows))

    def gitlink(o: Objects) -> str:
        return o.commit(o.solution(("160000", b"sub", o.head)))

    def nested(o: Objects) -> str:
        config = o.tree(("100644", b"config", o.blob(b"[core]\n\tfsmonitor = /tmp/payload\n")))
        return o.commit(o.solution(("40000", b".git", config)))

    def many(o: Objects) -> str:
        blob = o.blob(b"")
        return o.commit(o.with_solution(o.tree(*(("100644", b"f%05d" % n, blob) for n in range(20_000)))))

    def deep(o: Objects) -> str:
        tree = o.tree(("100644", b"f", o.blob(b"")))
        for _ in range(40):
            tree = o.tree(("40000", b"d", tree))
        return o.commit(o.with_solution(tree))

    def bomb(o: Objects) -> str:
        tree = o.tree(("100644", b"f", o.blob(b"")))
        for _ in range(10):
            tree = o.tree(*(("40000", b"d%d" % n, tree) for n in range(10)))
        return o.commit(o.with_solution(tree))

    def large(o: Objects) -> str:
        return o.commit(o.solution(("100644", b"kernel.cpp", o.blob(b" " * (65 << 20)))))

    def repeated(o: Objects) -> str:
        blob = o.blob(b"/" * (1 << 20))
        return o.commit(o.solution(*(("100644", b"f%03d.cpp" % n, blob) for n in range(400))))

    def file_for_folder(o: Objects) -> str:
        return o.commit(o.root(("100644", b"solution", o.blob(b"x")), without="solution"))

    def link_for_folder(o: Objects) -> str:
        return o.commit(o.root(("120000", b"solution", o.blob(b"/etc")), without="solution"))

    return {
        "attributes at the top": (
            in_root("100644", b".gitattributes", b"* filter=evil\n"),
            "`.gitattributes`",
        ),
        "attributes inside": (inside("100644", b".gitattributes", b"* diff=evil\n"), "not allowed"),
        "hooks": (in_root("100755", b"post-checkout", b"#!/bin/sh\n"), "`post-checkout`"),
        "submodule": (submodule, "`.gitmodules`"),
        "gitlink inside": (gitlink, "solution/sub is a file of mode 160000"),
        "repository inside": (nested, "solution/.git/config' is not allowed"),
        "link": (link(b"kernel.cpp", b"/etc/passwd"), "solution/kernel.cpp is a symbolic link"),
        "link upwards": (link(b"x.cpp", b"../../../../secret"), "solution/x.cpp is a symbolic link"),
        "file as the solution": (file_for_folder, "changes `solution`"),
        "link as the solution": (link_for_folder, "changes `solution`"),
        "odd mode": (inside("100666", b"x.cpp"), "solution/x.cpp is a file of mode 100666"),
        "backslash": (inside("100644", b"..\\x"), "is not allowed"),
        "dots": (inside("100644", b".."), "is not allowed"),
        "line break": (inside("100644", b"a\nb.cpp"), "a\\nb.cpp' is not allowed"),
        "escape sequence": (inside("100644", b"a\x1b[2J.cpp"), "is not allowed"),
        "not UTF-8": (inside("100644", b"a\xff.cpp"), "is not allowed"),
        "transport": (inside("100644", b"ext::sh -c touch% it-ran"), "is not allowed"),
        "not UTF-8 at the top": (in_root("100644", b"\xff\n`x`" + b"A" * 3000), "changes `\\udcff\\n'x'AAA"),
        "many files": (many, "too many files"),
        "deep folders": (deep, "too many files"),
        "tree bomb": (bomb, "too many files"),
        "large file": (large, "not a blob of at most"),
        "large in all": (repeated, "solution holds more than 33554432 bytes"),
    }


def judged() -> dict[str, tuple[Plant, str]]:
    """Return name -> a commit that is plain files at plain paths, and what its verdict must say of it."""

    def inside(*names: bytes) -> Plant:
        return lambda o: o.commit(o.solution(*(("100644", name, o.blob(b"x")) for name in names)))

    return {
        "case clash": (inside(b"Kernel.cpp"), "only in case"),
        "option as a name": (inside(b"--upload-pack=touch it-ran"), "is not allowed"),
        "short option as a name": (inside(b"-o.cpp"), "is not allowed"),
        "command as a name": (inside(b"$(touch it-ran).cpp"), "is not allowed"),
    }


def harmless() -> dict[str, Plant]:
    """Return name -> a commit with an honest, faster tree, whose text, date or parents are hostile."""

    def message(text: str) -> Plant:
        return lambda o: o.commit(o.solution(), text)

    def date(text: str) -> Plant:
        return lambda o: o.commit(o.solution(), f"Dated {text}", date=text)

    def second_parent(o: Objects) -> str:
        """Merge a commit that is on no branch; for whom does it pass?"""
        stray = o.commit(o.solution(("100644", b"kernel.cpp", o.blob(b"// stray\n"))), "Stray")
        return o.commit(o.solution(), "Merge a stray", parents=[o.head, stray])

    return {
        "no message": message(""),
        "forged epoch": message("s\n\nEpoch: 0123456789abcdef\nEpoch-Number: 99\n"),
        "forged merge": message("Merge: all\n\nSpeedup: 1000\nWorker: w1\nComparison: x\n"),
        "megabyte": message("A" * 900_000),
        "bytes": message("\udcff\udcfe\x1b]0;x\x07\u202e `x`\n# Heading\n\udcff"),
        "far future": date("999999999999 +0000"),
        "no date": date("yesterday"),
        "second parent": second_parent,
    }
