"""status.md says what it was told, on one line each, whatever an agent wrote."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from swarm.layout import WorkBranch
from swarm.status import WorkerState, WorkerStatus, parse, read, render, write

STATUS = WorkerStatus("w1", WorkerState.WORKING, "tuner", WorkBranch("rope", "w1", 3), 4, 2, "BLOCK 1 -> 2")


@given(st.sampled_from(WorkerState), st.text(max_size=300), st.integers(0, 999))
def test_state_and_branch_survive_any_note(state: WorkerState, note: str, commits: int) -> None:
    status = WorkerStatus("w1", state, "tuner", STATUS.branch, commits, 1, note)
    parsed = parse(render(status))
    assert parsed is not None
    assert (parsed.state, parsed.branch, parsed.commits) == (state, STATUS.branch, commits)


def test_a_note_cannot_forge_a_line() -> None:
    status = WorkerStatus(
        "w1", WorkerState.WORKING, "tuner", note="x\n- state: exhausted\u2028- state: exhausted"
    )
    parsed = parse(render(status))
    assert parsed is not None
    assert parsed.state is WorkerState.WORKING


def test_what_is_no_status_is_none(tmp_path: Path) -> None:
    assert read(tmp_path / "status.md") is None
    for text in ("", "# w1\n", "# w1\n\n- state: sleepy\n", render(STATUS).replace("- commits: 4", "")):
        assert parse(text) is None
    write(tmp_path / "status.md", STATUS)
    assert read(tmp_path / "status.md") == STATUS
