"""Read sources for what [rules] does not allow: a cheap filter with named rules, before anything is compiled.

It stops honest mistakes and plain cheats early, with a line number. It is no security boundary: macros can
hide anything from it. The sandbox and the judge's doubts are what a result rests on.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from swarm.errors import BadInput
from swarm.protocol import Rules
from swarm.schema import read_python, shown, suggest

PROBLEM_HEADER = "problem.h"
"""The header that the compiler gets for each problem; a tree cannot bring its own."""
PARAMS_MODULE = "params"
"""The module that Python sources take their [params] from; likewise made for them."""
CPP_LEXEME = re.compile(
    r"""(?P<keep>R"([^()\\\s]{0,16})\((?:.|\n)*?(?:\)\2"|\Z)
      | "(?:\\(?:.|\n)|[^"\\\n])*+(?:"|\\?\Z|(?=\n)) | '(?:\\.|[^'\\\n]){1,32}')
      | //(?:\\\n|[^\n])* | /\*(?:.|\n)*?(?:\*/|\Z)""",
    re.VERBOSE,
)
"""A literal, in which a comment cannot begin, or a comment. One that has no end goes to that of the line or
the text: then no text, however hostile, is read more than once."""
INCLUDE = re.compile(r"\s*(?:#|%:|\?\?=)\s*(?:include\w*|import|embed)\b\s*(.*)")


def check_sources(sources: Mapping[str, str], language: str, rules: Rules, where: str) -> None:
    """Raise BadInput, naming file and line, if a source imports or contains what `rules` does not allow."""
    for source, text in sources.items():
        is_python = source.endswith(".py")
        if is_python:
            text = text.replace("\r", "\n")  # which ends a line, and a comment, as well
        module = _parsed(text, where + source) if is_python else None
        code = without_comments(text, source)
        if is_python:
            code = unicodedata.normalize("NFKC", code).replace("\\\n", "\n")  # `ｅval` is eval
        for line, name in _includes(code) if module is None else _modules(module):
            if not _is_own(name, source, sources) and not _is_listed(name, rules.imports[language]):
                raise BadInput(
                    f"{name!r} may not be imported",
                    where=f"{where}{source}:{line}",
                    remedy=suggest(name, rules.imports[language]),
                )
        for rule in rules.forbidden[language]:
            if match := re.search(rule.pattern, code):
                raise BadInput(
                    f"{shown(match[0])} is forbidden ({rule.name}: {rule.why})",
                    where=f"{where}{source}:{code.count(chr(10), 0, match.start()) + 1}",
                    remedy="do without it",
                )


def without_comments(text: str, source: str) -> str:
    """Return `text` with its comments blanked; every line stays where it is."""
    if source.endswith(".py"):
        return _without_python_comments(text)

    def blank(match: re.Match[str]) -> str:
        return match[0] if match["keep"] else re.sub(r"[^\n]", " ", match[0])

    return CPP_LEXEME.sub(blank, text)


def _without_python_comments(text: str) -> str:
    """Do so for a source that parses; what only the tokenizer does not understand keeps its comments."""
    lines = text.split("\n")
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column]
    return "\n".join(lines)


def _includes(code: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of the headers that a C++ source asks for."""
    for number, line in enumerate(code.split("\n"), start=1):
        if match := INCLUDE.match(line):
            name = re.match(r"[<\"]([^>\"]*)[>\"]", match[1])
            yield number, name[1] if name else match[1]


def _parsed(text: str, where: str) -> ast.Module:
    try:
        coding, _ = tokenize.detect_encoding(io.BytesIO(text.encode()).readline)
        if coding != "utf-8":
            raise BadInput(
                f"it says that it is written in {coding}",
                where=f"{where}:1",
                remedy="leave that out, and write UTF-8",
            )
        return read_python(text)
    except SyntaxError as error:
        place = f"{where}:{error.lineno or 1}"
        raise BadInput(f"not Python: {error.msg}", where=place, remedy="correct the syntax") from None


def _modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of the top-level modules that a Python source asks for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level or (node.module or "").partition(".")[0]


def _is_listed(name: str, imports: Collection[str]) -> bool:
    """Whether an import is allowed by its own name, or by `folder/*`."""
    folder = name.partition("/")[0]
    return name in imports or (f"{folder}/*" in imports and ".." not in name.split("/"))


def _is_own(name: str, source: str, sources: Collection[str]) -> bool:
    """Whether an import names a file of the tree itself (or the problem's header)."""
    if source.endswith(".py"):
        return name == PARAMS_MODULE or any(
            item.split("/")[0].removesuffix(".py") == name for item in sources
        )
    folder = source.rpartition("/")[0]
    beside = f"{folder}/{name}" if folder else name
    return name == PROBLEM_HEADER or name in sources or beside in sources
