"""Honest candidates in C++ on the CPU."""

from __future__ import annotations

from tests.corpus.cases import Files, cpp, honest


@honest()
def plain_rows() -> Files:
    """Computes row after row, as anybody would at first.

    Looks like: nothing; others are compared with it.
    """
    return cpp("honest(x, w, y, 0, rows);")
