"""KernelBench's modules become functions of inputs and parameters; their code runs in the sandbox alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from swarm.judge.lint import lint
from swarm.judge.reference import References
from swarm.protocol import read_protocol
from swarm.verdict import Status
from tests.importers.conftest import DEVICE, Bench, Importer, Said
from tests.support import REPOSITORY

LINEAR = '''import torch
import torch.nn as nn

class Model(nn.Module):
    """A linear layer, then a norm."""
    def __init__(self, n, m):
        super(Model, self).__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.LayerNorm(m)

    def forward(self, x, scale):
        return self.norm(self.linear(x)) * scale

def get_inputs():
    return [torch.rand(64, 48), 2.5]

def get_init_inputs():
    return [48, 32]
'''
BATCH_NORM = """import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(3, c, 3)
        self.bn = nn.BatchNorm2d(c)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))

def get_inputs():
    return [torch.randn(2, 3, 16, 16)]

def get_init_inputs():
    return [8]
"""
LOSS = """import torch
from torch.distributions import Pareto

class Model(torch.nn.Module):
    def forward(self, predictions, targets):
        return torch.nn.functional.cross_entropy(predictions, targets)

def get_inputs():
    return [Pareto(0.01, 1.5).sample((64, 10)), torch.randint(0, 10, (64,))]

def get_init_inputs():
    return []
"""
LSTM = """import torch

class Model(torch.nn.Module):
    def __init__(self, i, h, l):
        super().__init__()
        self.lstm = torch.nn.LSTM(i, h, l, batch_first=True)
        self.register_buffer("window", torch.tril(torch.ones(5, 5)))

    def forward(self, x, h0, c0):
        out, state = self.lstm(self.window @ x, (h0, c0))
        return out, state[0]

def get_inputs():
    return [torch.rand(2, 5, 8), torch.rand(2, 2, 16), torch.rand(2, 2, 16)]

def get_init_inputs():
    return [8, 16, 2]
"""
HUGE = """import torch

class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.randn(65536, 65536), torch.randn(65536, 65536)]

def get_init_inputs():
    return []
"""
END = "\n\ndef get_inputs():\n    return [torch.randn(4, 4)]\n\ndef get_init_inputs():\n    return []\n"
MODULE = "import torch\n\nclass Model(torch.nn.Module):\n"
BAD = {
    "dropout": (
        f"{MODULE}    def forward(self, x):\n        return torch.nn.functional.dropout(x, 0.5){END}",
        "forward draws random numbers (aten.bernoulli_.float); there is no one right answer; "
        "have it use no dropout",
    ),
    "drawn": (
        f"{MODULE}    def __init__(self):\n        super().__init__()\n        self.w = torch.randn(4, 4)\n"
        f"    def forward(self, x):\n        return x @ self.w{END}",
        "w is drawn by the constructor, but is no parameter; make it a torch.nn.Parameter, "
        "so that a solution can be given it",
    ),
    "fails": (
        f"{MODULE}    def forward(self, x):\n        return x @ torch.ones(5, 5){END}",
        "could not be tried out: RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x4 and 5x5); "
        "correct it, or leave it out",
    ),
    "nested": (
        f"{MODULE}    def forward(self, x):\n        return x, (x, x){END}",
        "could not be tried out: TypeError: forward returns a tuple in a tuple; tensors are understood; "
        "correct it, or leave it out",
    ),
    "text": (
        f"{MODULE}    def forward(self, x, how):\n        return x{END}".replace(
            "[torch.randn(4, 4)]", '[torch.randn(4, 4), "sum"]'
        ),
        "could not be tried out: TypeError: how is a str; tensors and numbers are understood; "
        "correct it, or leave it out",
    ),
    "dtype": (
        f"{MODULE}    def forward(self, x):\n        return torch.complex(x, x){END}",
        "outputs.output.dtype: dtype 'complex64' is unknown; ",
    ),
    "no_model": (f"import torch{END}", "defines no Model at its top; add it, or leave the file out"),
    "taken": (
        f"{MODULE}    def forward(self, x):\n        return x{END}\ndef run():\n    pass\n",
        "defines run, which an import writes below it; rename it",
    ),
    "syntax": (f"def get_inputs(:\n{END}", "not Python: "),
}
KILLS = f"""import os, signal
for victim in (os.getppid(), os.getpid()):
    try:
        os.kill(victim, signal.SIGKILL)
    except OSError:
        pass
{MODULE}    def forward(self, x):
        return x
{END}"""


GOOD = {
    "level1/12_Linear_Norm.py": LINEAR,
    "level1/33_BatchNorm.py": BATCH_NORM,
    "level1/95_Loss.py": LOSS,
    "level1/99_Huge.py": HUGE,
    "level3/35_LSTM.py": LSTM,
}
NAMES = [place.lower().replace("/", "_").removesuffix(".py") for place in GOOD]
PROTOCOL = read_protocol((REPOSITORY / "COORDINATION.md").read_bytes(), "COORDINATION.md")


@dataclass(frozen=True, slots=True)
class Done:
    """All of it, imported at once."""

    into: Importer
    said: Said
    source: Path
    spy: Path
    """What a module tried to write."""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("kernelbench")
    source, spy = folder / "source", folder / "spy"
    spying = f'import os\nopen({str(spy)!r}, "w").write(str(os.getpid()))\n{LINEAR}'
    bad = {f"bad/{name}.py": text for name, (text, _) in BAD.items()}
    for name, text in {"bad/a_kills.py": KILLS, "bad/a_spy.py": spying, **bad, **GOOD}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    into = Importer(folder / "root")
    return Done(into, into(source), source, spy)


def test_modules_become_problems(done: Done) -> None:
    assert done.said.out["format"] == "KernelBench"
    assert done.said.outcomes == dict.fromkeys(NAMES, "new")


def test_a_module_is_a_function_of_its_inputs_and_parameters(done: Done) -> None:
    problem = done.into.problem("level1_12_linear_norm")
    shapes = {name: spec.shape for name, spec in problem.definition.inputs.items()}
    assert shapes == {
        "x": ("64", "48"),
        "scale": None,
        "linear_weight": ("32", "48"),
        "linear_bias": ("32",),
        "norm_weight": ("32",),
        "norm_bias": ("32",),
    }
    assert [spec.shape for spec in problem.definition.outputs.values()] == [("64", "32")]
    assert problem.definition.description == "A linear layer, then a norm."
    assert problem.settings.source == "KernelBench level1/12_Linear_Norm.py"
    tolerance = problem.settings.tolerance
    assert (tolerance.max_atol, tolerance.max_rtol, tolerance.required_matched_ratio) == (1e-4, 1e-4, 1.0)


def test_one_file_alone_makes_the_same_problem(done: Done) -> None:
    before = done.into.content()
    said = done.into(done.source / "level1/12_Linear_Norm.py")
    assert said.outcomes == {"level1_12_linear_norm": "unchanged"}
    assert done.into.content() == before


@pytest.mark.parametrize("name", [name for name in NAMES if "huge" not in name])
def test_what_was_made_of_a_module_is_measured(name: str, done: Done, bench: Bench) -> None:
    verdict = bench(done.into.problem(name))
    assert verdict.status is Status.PASSED, verdict.reason


def test_every_parameter_has_to_be_read(done: Done) -> None:
    """A norm's weight is 1 and its bias 0 as torch makes them: who left them out would be right."""
    cores = os.sched_getaffinity(0)
    with References(DEVICE) as references:
        found = lint(done.into.problem("level1_12_linear_norm"), PROTOCOL.tests, references)
    os.sched_setaffinity(0, cores)
    assert [str(finding) for finding in found.findings] == []


def test_sizes_for_a_gpu_cost_nothing_here(done: Done) -> None:
    problem = done.into.problem("level1_99_huge")
    assert problem.definition.outputs["output"].shape == ("65536", "65536")
    assert not problem.cpu_workloads


def test_code_of_a_module_runs_in_the_sandbox_alone(done: Done) -> None:
    assert done.said.left_out["bad/a_kills.py"] == (
        "bad/a_kills.py: could not be tried out: its process died; correct it, or leave it out"
    )
    assert "could not be tried out: FileNotFoundError" in done.said.left_out["bad/a_spy.py"]
    assert not done.spy.exists()


def test_what_cannot_be_a_problem_is_said_in_a_line_each(done: Done) -> None:
    assert done.said.code == 1
    wrong = {name: line for name, line in done.said.left_out.items() if not name.startswith("bad/a_")}
    assert wrong.keys() == {f"bad/{name}.py" for name in BAD}
    for name, line in wrong.items():
        expected = BAD[name.removeprefix("bad/").removesuffix(".py")][1]
        assert line.removeprefix(name).lstrip(":0123456789 ").startswith(expected), line
        assert "\n" not in line


def test_the_uuid_of_a_module_follows_from_its_place(done: Done) -> None:
    identifiers = [done.into.problem(name).workloads[0].uuid for name in NAMES]
    assert len(set(identifiers)) == len(NAMES)
