from __future__ import annotations

from pathlib import Path

import pytest

from swarm.config import Config, choose_problems, load_config, parse_config
from swarm.errors import BadInput
from swarm.layout import find_root


def test_the_file_of_the_project_says_what_an_empty_one_means() -> None:
    assert load_config(find_root(Path(__file__).parent)) == Config() == parse_config(b"")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[run]\nworker = 2\n", "swarm.toml:2: run.worker: unknown field; did you mean 'workers'?"),
        (
            "[run]\nworkers = 0\n",
            "swarm.toml:2: run.workers: 0 is not allowed; it must be greater than or equal to 1",
        ),
        ("\n[runs]\n", "swarm.toml:2: runs: unknown field; did you mean 'run'?"),
        ('[run]\nagent = "oracle"\n', "swarm.toml:2: run.agent: 'oracle' is not allowed; it must be 'tuner'"),
        (
            '[run]\nlanguage = "cuba"\n',
            "swarm.toml:2: run.language: language 'cuba' is unknown; did you mean 'cuda'?",
        ),
        (
            "[run]\nminutes = true\n",
            "swarm.toml:2: run.minutes: true is not allowed; it must be a valid number",
        ),
        (
            "[run\n",
            "swarm.toml:1: not TOML: Expected ']' at the end of a table declaration; "
            "correct the syntax there",
        ),
        (
            '[run]\nname = "My Run"\n',
            "swarm.toml:2: run.name: run name 'My Run' is not allowed; "
            "use lower-case letters, digits, '_' and single '-', at most 100 of them",
        ),
        (
            "[budget]\nbaseline_s = 0\n",
            "swarm.toml:2: budget.baseline_s: 0 is not allowed; it must be greater than 0",
        ),
    ],
)
def test_a_broken_file_is_one_line_with_line_value_and_remedy(text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_config(text.encode())
    assert str(caught.value) == message


def test_patterns_choose_problems_and_each_must_match(tmp_path: Path) -> None:
    for name in ("rope", "rmsnorm", "swiglu", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "README.md").touch()
    assert choose_problems(("r*", "rope"), tmp_path) == ("rmsnorm", "rope")
    assert choose_problems(("*",), tmp_path) == ("rmsnorm", "rope", "swiglu")
    with pytest.raises(BadInput, match=r"no problem 'swiglo'; did you mean 'swiglu'\?$"):
        choose_problems(("rope", "swiglo"), tmp_path)
    with pytest.raises(BadInput, match=r"no problem 'gemm\*'; `swarm problems list` shows which there are$"):
        choose_problems(("gemm*",), tmp_path)


def test_where_no_problem_is_the_first_one_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / ".gitkeep").touch()
    for pattern in ("*", "rope"):
        with pytest.raises(BadInput, match="no problem is here yet; put a folder there"):
            choose_problems((pattern,), tmp_path)
