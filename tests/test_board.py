"""The board parses exactly what it renders, and says which line is wrong otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.board import PROBLEM_COLUMNS, STATES, Board, ProblemRow, WorkerRow, parse, read, render, write
from swarm.errors import BadInput
from swarm.layout import NAME, WorkBranch

names = st.from_regex(NAME, fullmatch=True).filter(str.isascii)
times = st.none() | st.floats(min_value=1e-3, max_value=1e9)
counts = st.integers(0, 10**8)


@st.composite
def boards(draw: st.DrawFn) -> Board:
    problems = [
        ProblemRow(
            name,
            draw(st.sampled_from(STATES)),
            draw(st.from_regex(r"[0-9a-f]{40}", fullmatch=True)),
            draw(times),
            draw(times),
            *(draw(counts) for _ in range(4)),
        )
        for name in draw(st.lists(names, unique=True, max_size=4))
    ]
    workers = []
    for name in draw(st.lists(names, unique=True, max_size=4)):
        branch = draw(st.none() | st.builds(WorkBranch, names, st.just(name), st.integers(1, 10**8)))
        state = "free" if branch is None else draw(st.sampled_from(["assigned", "free"]))
        workers.append(WorkerRow(name, state, branch, draw(st.floats(0, 1e10))))
    return Board(tuple(problems), tuple(workers))


@given(boards())
def test_a_rendered_board_parses_to_itself(board: Board) -> None:
    assert parse(render(board), "board.md") == board


@given(boards(), st.data())
def test_any_damage_to_a_table_line_is_found_or_harmless(board: Board, data: st.DataObject) -> None:
    text = render(board)
    position = data.draw(st.integers(0, len(text) - 1))
    damaged = (
        text[:position] + data.draw(st.sampled_from(["|", "\n", "x", "-", " | "])) + text[position + 1 :]
    )
    try:
        parsed = parse(damaged, "board.md")
    except BadInput as error:
        assert str(error).startswith("board.md")
    else:
        assert parse(render(parsed), "board.md") == parsed


BOARD = Board(
    (ProblemRow("rope", "active", "a" * 40, 12.5, None, 3, 2, 1, 1), ProblemRow("softmax", "new", "b" * 40)),
    (WorkerRow("w1", "assigned", WorkBranch("rope", "w1", 2), 5.0), WorkerRow("w2", "free")),
)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("12.5", "fast", 9, "time_us is 'fast'"),
        ("12.5", "nan", 9, "not a positive time"),
        ("active", "busy", 9, "must be one of"),
        ("a" * 40, "HEAD", 9, "not a commit id"),
        ("| softmax", "| rope", 10, "a second row for 'rope'"),
        ("| 3 | 2 |", "| 3 |", 9, "8 cells where 9 are needed"),
        ("| 3 | 2 |", "| -3 | 2 |", 9, "verdicts is '-3'"),
        ("work/rope/w1-2", "work/rope/w2-2", 16, "is not of worker 'w1'"),
        ("work/rope/w1-2", "-", 16, "assigned to no branch"),
        ("work/rope/w1-2", "problem/rope", 16, "not a work branch"),
        ("| w2 | free", "w2 | free", 17, "is not a table row"),
        ("| problem |", "| name |", 7, "the columns must be"),
        ("## Workers", "## Problems", 12, "a second section"),
    ],
)
def test_a_broken_line_is_named(old: str, new: str, line: int, message: str) -> None:
    text = render(BOARD)
    assert old in text
    with pytest.raises(BadInput) as caught:
        parse(text.replace(old, new, 1), "board.md")
    assert caught.value.where == f"board.md:{line}"
    assert message in str(caught.value)
    assert "swarm plan --rebuild" in str(caught.value)


def test_a_missing_section_is_an_error_and_a_missing_file_is_not(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no table below '## Workers'"):
        parse(render(BOARD).split("## Workers")[0], "board.md")
    assert read(tmp_path / "board.md") is None


def test_the_protocol_chooses_columns_and_states(tmp_path: Path) -> None:
    columns = ("problem", "state", "champion", "verdicts", "workers")
    path = tmp_path / "board.md"
    write(path, BOARD, columns)
    row = read(path, columns).problems[0]  # type: ignore[union-attr]
    assert (row.problem, row.workers, row.time_us) == ("rope", 1, None)
    with pytest.raises(BadInput, match="the columns must be"):
        read(path, PROBLEM_COLUMNS)
    with pytest.raises(BadInput, match="must be one of new"):
        read(path, columns, states=["new"])
    with pytest.raises(BadInput, match="lack 'state'"):
        read(path, ("problem", "champion"))


def test_bytes_that_are_no_text_name_their_line(tmp_path: Path) -> None:
    path = tmp_path / "board.md"
    path.write_bytes(render(BOARD).encode().replace(b"softmax", b"s\xffx"))
    with pytest.raises(BadInput, match=":10: not UTF-8"):
        read(path)


def test_an_unchanged_board_is_not_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "board.md"
    write(path, BOARD)
    before = path.stat()
    write(path, BOARD)
    assert path.stat().st_ino == before.st_ino
