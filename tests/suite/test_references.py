"""No problem is degenerate: what is right has spread, is finite, and changes with each input.

And the library calls of baseline.py give the references' answers.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from swarm.judge import check, elements
from swarm.judge.cuda.desk import CudaDesk
from swarm.judge.lint import FAST_SHARE, INDICES, difference
from swarm.judge.reference import FAST, PLAIN, InvalidReference, Reference, References
from swarm.judge.slots import Buffer
from swarm.problem import Problem, problem_from_files
from swarm.protocol import Tests, load_protocol
from swarm.workload import Workload
from tests.problem_files import definition, encoded, problem_files
from tests.suite.drawn import Calls, Item, on_a_cpu, on_a_gpu
from tests.suite.shipped import NAMES, ON_A_CPU, ROOT, shipped

NOT_ON_A_CPU = {"fp8_block_linear", "gqa_paged_decode", "gqa_paged_prefill", "ragged_prefill"}
"""The problems whose baseline.py calls what torch has for GPUs alone."""
WITH_BASELINE = [name for name in ON_A_CPU if shipped(name).baseline is not None]
WITH_FAST = [name for name in NAMES if shipped(name).fast_reference is not None]
SAMPLE = 1 << 16
BASELINE = "baseline.py"


@pytest.fixture(scope="module")
def tests() -> Tests:
    return load_protocol((ROOT / "COORDINATION.md").read_text(), "COORDINATION.md").tests


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CudaDesk]:
    from swarm.cli.devices import chosen_devices

    with CudaDesk(chosen_devices("cuda")[0], tmp_path_factory.mktemp("cache")) as made:
        yield made


@pytest.mark.parametrize("name", ON_A_CPU)
def test_answers_on_a_cpu_have_spread_and_change_with_each_input(
    name: str, references: References, tests: Tests
) -> None:
    problem, mattered = shipped(name), set[str]()
    reference = references.answering(name, problem)
    for workload in problem.cpu_workloads:
        with on_a_cpu(problem, workload, reference) as calls:
            mattered |= check_calls(problem, workload, calls, reference, tests)
    assert mattered == problem.definition.inputs.keys()


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_answers_on_a_gpu_have_spread_and_change_with_each_input(
    name: str, desk: CudaDesk, tests: Tests
) -> None:
    problem, mattered = shipped(name), set[str]()
    reference = desk.reference(name, problem)
    for workload in problem.workloads:
        with on_a_gpu(problem, workload, reference, desk.context, desk.kernels) as calls:
            mattered |= check_calls(problem, workload, calls, reference, tests, together=True)
    assert mattered == problem.definition.inputs.keys()
    desk.references.release(name)


@pytest.mark.parametrize("name", [name for name in WITH_FAST if name in ON_A_CPU])
def test_a_fast_reference_answers_like_the_plain_one_on_a_cpu(
    name: str, references: References, tests: Tests
) -> None:
    problem = shipped(name)
    reference = references.answering(name, problem)
    for workload in problem.cpu_workloads:
        with on_a_cpu(problem, workload, reference) as calls:
            check_fast(problem, workload, calls, reference, tests)


@pytest.mark.gpu
@pytest.mark.parametrize("name", WITH_FAST)
def test_a_fast_reference_answers_like_the_plain_one_on_a_gpu(
    name: str, desk: CudaDesk, tests: Tests
) -> None:
    """Lint compares them on a CPU, where torch may take another path, and at small sizes."""
    problem = shipped(name)
    reference = desk.reference(name, problem)
    for workload in problem.workloads:
        with on_a_gpu(problem, workload, reference, desk.context, desk.kernels) as calls:
            check_fast(problem, workload, calls, reference, tests)
    desk.references.release(name)


def check_fast(
    problem: Problem, workload: Workload, calls: Calls, reference: Reference, tests: Tests
) -> None:
    limits = problem.limits(workload, tests)
    right, got = (calls.answer(calls.first, reference, function) for function in (PLAIN, FAST))
    for shape, wanted, values in zip(calls.outputs, right, got, strict=True):
        assert difference(values, wanted, limits) <= FAST_SHARE, f"{workload.uuid}: {shape.name}"


def check_calls(
    problem: Problem,
    workload: Workload,
    calls: Calls,
    reference: Reference,
    tests: Tests,
    together: bool = False,
) -> set[str]:
    """Return the inputs that were seen to matter; those that a workload's sizes fix cannot be."""
    limits = problem.limits(workload, tests)
    before, now = (calls.answer(inputs, reference, PLAIN) for inputs in (calls.first, calls.second))
    for shape, old, new in zip(calls.outputs, before, now, strict=True):
        where = f"{workload.uuid}: {shape.name}"
        for values in (old, new):
            assert check.invalid_reference(shape.name, values, limits) == "", where
            assert has_spread(values), where
        assert not torch.equal(old, new), f"{where} is always the same"
    mattered: set[str] = set()
    for names, mixed in one_changed(problem, workload, calls, together):
        try:
            got = calls.answer(mixed, reference, PLAIN)
            assert not all(map(torch.equal, now, got)), f"{workload.uuid}: {', '.join(names)} does not matter"
        except InvalidReference:
            # What it cannot make sense of beside the others, it has read. Floats always make sense.
            assert all(problem.definition.inputs[name].dtype in INDICES for name in names)
        mattered |= names
    return mattered


def one_changed(
    problem: Problem, workload: Workload, calls: Calls, together: bool
) -> Iterator[tuple[set[str], list[Item]]]:
    """Yield the second call's inputs with one of the first call's among them, and its name.

    Indices that a problem makes itself fit each other, as a page table does its lengths: a GPU would read
    beyond its tensors if one changed alone, so they change `together` there. Some are what sizes make them.
    """
    definition, fitting = problem.definition, set[int]()
    for index, (name, spec) in enumerate(definition.inputs.items()):
        old, new = calls.first[index], calls.second[index]
        mixed = list(calls.second)
        if isinstance(old, Buffer) and isinstance(new, Buffer):
            if workload.is_custom and spec.dtype in INDICES:
                if calls.read(old) == calls.read(new):
                    continue
                if together:
                    fitting.add(index)
                    continue
            mixed[index] = old
        else:
            mixed[index] = other(new)
        yield {name}, mixed
    if fitting:
        names = list(definition.inputs)
        mixed = [calls.first[i] if i in fitting else item for i, item in enumerate(calls.second)]
        yield {names[i] for i in fitting}, mixed


def other(scalar: Item) -> Item:
    """Return another scalar that makes sense in the same place."""
    if isinstance(scalar, bool):
        return not scalar
    assert isinstance(scalar, int | float)
    return scalar / 2 if isinstance(scalar, float) else max(1, scalar // 2)


def has_spread(values: torch.Tensor) -> bool:
    """Say whether no value has nearly all of the elements, and some have the rest."""
    if values.numel() < 8:
        return True
    if values.numel() > SAMPLE:
        values = values[torch.randint(values.numel(), (SAMPLE,), generator=torch.Generator().manual_seed(0))]
    counts = values.unique(return_counts=True)[1]
    return len(counts) >= 4 and float(counts.max()) < 0.9 * values.numel()


@pytest.mark.parametrize("name", WITH_BASELINE)
def test_baseline_gives_the_references_answers(name: str, references: References, tests: Tests) -> None:
    problem = shipped(name)
    reference = references.answering(name, problem)
    library = references.get(f"{name}/{BASELINE}", name, problem.definition, is_wider=False)
    assert problem.baseline is not None
    library.load(BASELINE, problem.baseline)
    for workload in problem.cpu_workloads:
        with on_a_cpu(problem, workload, reference) as calls:
            if name in NOT_ON_A_CPU:
                with pytest.raises(InvalidReference):
                    calls.answer(calls.first, library, BASELINE)
                continue
            got = calls.answer(calls.first, library, BASELINE)
            for shape, right, values in zip(
                calls.outputs, calls.answer(calls.first, reference, PLAIN), got, strict=True
            ):
                stored = elements.stored(values, shape.dtype)
                limits = problem.limits(workload, tests)
                match = check.compare(shape.name, stored, right, shape.dtype, shape.dims, limits)
                assert match.passed, f"{workload.uuid}: {match.reason}"


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("x * weight * scale", ""),
        ("x * weight + 0 * scale", "scale does not matter"),
        ("x * scale + 0 * weight", "weight does not matter"),
        ("x * weight * scale * (x > 1.5)", "y"),
        ("torch.arange(64).expand(x.shape) + 0 * x", "y is always the same"),
        ("x * weight / (0 * scale)", "the reference returned"),
    ],
)
def test_what_is_degenerate_is_found(returned: str, said: str, references: References, tests: Tests) -> None:
    files = problem_files()
    content = definition(reference=f"import torch\ndef run(x, weight, scale):\n    return {returned}\n")
    problem = problem_from_files({**files, "definition.json": encoded(content)}, "made")
    reference = references.get(returned, "made", problem.definition, is_wider=False)
    workload = problem.workloads[0]
    with on_a_cpu(problem, workload, reference) as calls:
        if not said:
            check_calls(problem, workload, calls, reference, tests)
            return
        with pytest.raises(AssertionError, match=said):
            check_calls(problem, workload, calls, reference, tests)
