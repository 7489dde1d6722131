"""Which devices are meant. The GPUs here are made up: what a driver says of real ones is in tests/gpu."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.cli import devices
from swarm.cli.devices import choose, chosen_devices, describe, idle_one
from swarm.cli.run import _choice
from swarm.cli.state import RunState
from swarm.config import Config
from swarm.device import Device, cores_beside, cpu_device, runs_on, why_no_gpu
from swarm.errors import BadInput, Refused
from swarm.judge.cuda.devices import cuda_devices, shares
from swarm.layout import RunRoot
from swarm.locks import device_lock_path, held
from swarm.solution import Language

BIG = [Device("cuda", "nvidia-h200", f"GPU-{n}03b186a-e5ab", (n,), "sm_90a") for n in (3, 4)]
SMALL = Device("cuda", "nvidia-l40s", "GPU-303c0000-0000", (5,), "sm_89")

NOT_USED = "; the GPU is not used: there is no seed for it"


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[Device]:
    """Two GPUs of one model and one of another."""
    found = [BIG[0], SMALL, BIG[1]]
    monkeypatch.setattr(devices, "_gpus", lambda: found)
    monkeypatch.setattr(devices, "why_no_gpu", lambda: "")
    monkeypatch.setattr("swarm.device.why_no_gpu", lambda: "")
    return found


def test_every_language_runs_somewhere() -> None:
    assert {
        language for language in Language if not (runs_on(language, "cpu") or runs_on(language, "cuda"))
    } == set()
    assert runs_on("pytorch", "cpu") and runs_on("pytorch", "cuda")
    assert not runs_on("cpp", "cuda") and not runs_on("cuda", "cpu")


@pytest.mark.parametrize("language", [None, "cpp", "pytorch"])
def test_without_a_gpu_the_cpu_is_the_device(language: str | None) -> None:
    assert chosen_devices(None, language) == [cpu_device()]
    assert chosen_devices("auto", language) == [cpu_device()]


@pytest.mark.parametrize("language", ["cuda", "cuda_cpp", "triton", "cute_dsl"])
def test_what_needs_a_gpu_does_not_fall_back_to_the_cpu(language: str) -> None:
    with pytest.raises(Refused, match=f"^{language} runs on a GPU only, and .*{why_no_gpu()}"):
        chosen_devices(None, language)
    with pytest.raises(
        BadInput, match=f"^device cpu: {language} does not run on the CPU; give --device cuda$"
    ):
        chosen_devices("cpu", language)


def test_a_gpu_that_is_asked_for_and_not_there_is_one_line() -> None:
    for name in ("cuda", "cuda:0"):
        with pytest.raises(Refused, match="hides every GPU; `swarm doctor`"):
            chosen_devices(name)
    with pytest.raises(BadInput, match=r"no device 'h200'; there is only cpu: CUDA_VISIBLE_DEVICES"):
        chosen_devices("h200")


def test_a_machine_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused):
        cuda_devices()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("pathlib.Path.exists", lambda path: False)
    assert why_no_gpu() == "no NVIDIA GPU is here: there is no /dev/nvidia*"


@pytest.mark.parametrize("language", ["cuda", "triton", "pytorch", None])
def test_by_itself_a_command_takes_all_gpus_of_the_first_model(
    gpus: list[Device], language: str | None
) -> None:
    assert chosen_devices(None, language) == BIG
    assert chosen_devices("cuda", language) == BIG


def test_cpp_stays_on_the_cpu_beside_a_gpu(gpus: list[Device]) -> None:
    assert chosen_devices(None, "cpp") == [cpu_device()]
    with pytest.raises(BadInput, match="device cuda: cpp does not run on a GPU; give --device cpu"):
        chosen_devices("cuda", "cpp")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cuda:0", [BIG[0]]),
        ("cuda:2,0", [BIG[1], BIG[0]]),
        ("cuda:0,0", [BIG[0]]),
        ("cuda:1", [SMALL]),
        ("GPU-403", [BIG[1]]),
        ("gpu-303C", [SMALL]),
        ("403b186a", [BIG[1]]),
        (f"{BIG[0].uuid},{BIG[1].uuid}", BIG),
    ],
)
def test_devices_are_named_by_number_or_uuid(gpus: list[Device], name: str, expected: list[Device]) -> None:
    assert chosen_devices(name) == expected


def test_the_cpu_is_named_by_its_kind(gpus: list[Device]) -> None:
    assert chosen_devices("cpu") == [cpu_device()]


@pytest.mark.parametrize("name", ["cuda:3", "cuda:x", "GPU-303", "GPU-", "gpu", "h200", "cuda:", ",", "403,"])
def test_a_name_that_fits_nothing_or_too_much_lists_what_is_there(gpus: list[Device], name: str) -> None:
    with pytest.raises(BadInput) as caught:
        chosen_devices(name)
    line = str(caught.value)
    assert line.startswith(
        f"--device: no device {name!r}; there are cpu, cuda, cuda:0 (GPU-303b186a-e5ab, nvidia-h200)"
    )
    assert "cuda:1 (GPU-303c0000-0000, nvidia-l40s)" in line


def test_one_that_nobody_measures_on_comes_first(
    gpus: list[Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWARM_DEVICE_LOCKS", str(tmp_path / "locks"))
    assert idle_one(BIG) == BIG[0]
    with held(device_lock_path(BIG[0].uuid), timeout_s=0, purpose="test"):
        assert idle_one(BIG) == BIG[1]
        with held(device_lock_path(BIG[1].uuid), timeout_s=0, purpose="test"):
            assert idle_one(BIG) == BIG[0]
    assert idle_one(BIG) == BIG[0]


def test_times_of_different_models_are_not_mixed(gpus: list[Device]) -> None:
    with pytest.raises(BadInput, match="names GPUs of several models"):
        chosen_devices("cuda:0,1")


def test_a_gpu_that_cannot_be_used_is_no_reason_to_take_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[Device]:
        raise Refused("cuda-bindings is missing", remedy="pip install cuda-bindings")

    monkeypatch.setattr(devices, "_gpus", broken)
    monkeypatch.setattr(devices, "why_no_gpu", lambda: "")
    with pytest.raises(
        Refused, match=r"^cuda-bindings is missing; pip install cuda-bindings; or give --device cpu$"
    ):
        chosen_devices(None, "pytorch")
    with pytest.raises(
        Refused, match=r"^cuda runs on a GPU only, and cuda-bindings is missing; pip .*; --device cpu leaves"
    ):
        choose(None, None, {"cuda", "cpp"})


@pytest.mark.parametrize(
    ("name", "language", "seeds", "expected"),
    [
        (None, None, {"cuda", "cpp"}, "cuda on 2 × nvidia-h200 (GPU-303b186a, GPU-403b186a)"),
        ("cuda:1", None, {"cuda", "cpp"}, "cuda on nvidia-l40s (GPU-303c0000)"),
        (None, None, {"triton", "cpp"}, "triton on 2 × nvidia-h200 (GPU-303b186a, GPU-403b186a)"),
        (None, "triton", {"cuda"}, "triton on 2 × nvidia-h200 (GPU-303b186a, GPU-403b186a)"),
        ("cpu", None, {"cuda", "cpp"}, f"cpp on the CPU ({cpu_device().model})"),
        (None, "cpp", {"cuda", "cpp"}, f"cpp on the CPU ({cpu_device().model})"),
        (None, None, {"cpp"}, f"cpp on the CPU ({cpu_device().model}){NOT_USED}"),
    ],
)  # fmt: skip
def test_language_and_device_follow_from_each_other_and_from_the_seeds(
    gpus: list[Device], name: str | None, language: str | None, seeds: set[str], expected: str
) -> None:
    choice = choose(name, language, seeds)
    assert choice.remark == expected
    assert describe(choice.devices) in expected


def test_without_a_gpu_a_run_is_what_it_always_was() -> None:
    choice = choose(None, "auto", {"cuda", "cpp"})
    assert (choice.language, choice.devices) == ("cpp", [cpu_device()])


CPU = (cpu_device(),)


@pytest.mark.parametrize(
    ("before", "said", "expected"),
    [
        (None, {}, "cuda on 2 × nvidia-h200 (GPU-303b186a, GPU-403b186a)"),
        (("cpp", CPU), {}, "{cpu}; the GPU is not used: this run is in cpp"),
        (("cpp", CPU), {"device": "cpu"}, "{cpu}"),
        (("cuda", ()), {}, "cuda, measured elsewhere on nvidia-b200: `swarm pending"),
        (("cuda", ()), {"device": "cuda:0"}, "cuda on nvidia-h200 (GPU-303b186a)"),
        (("triton", tuple(BIG)), {"device_model": "NVIDIA L40S"}, "triton, measured elsewhere on nvidia-l"),
        (("cuda", tuple(BIG)), {"language": "triton"}, "--language triton: this run is in cuda, "),
        (("cpp", CPU), {"device": "cuda"}, "device cuda: cpp does not run on a GPU; give --device cpu"),
    ],
)  # fmt: skip
def test_a_run_that_goes_on_stays_what_it_was(
    gpus: list[Device], before: tuple[str, tuple[Device, ...]] | None, said: dict[str, str], expected: str
) -> None:
    state = before and RunState("tuner", before[0], (), (), 0.0, 0.0, "nvidia-b200", before[1])
    wishes = {"language": None, "device": None, "device_model": None, **said}
    root = RunRoot(Path(__file__).parent.parent)
    try:
        told = _choice(root, state, Config(), **wishes, names=("rope",)).remark
    except (BadInput, Refused) as error:
        told = str(error)
    assert told.startswith(expected.format(cpu=f"cpp on {describe(CPU)}"))


@pytest.mark.parametrize(
    ("cores", "count", "expected"),
    [
        (16, 1, [(4, 5, 6, 7)]),
        (16, 4, [(4, 5, 6), (7, 8, 9), (10, 11, 12), (13, 14, 15)]),
        (2, 1, [(1,)]),
        (1, 1, [(0,)]),
        (2, 3, [(1,), (1,), (1,)]),
    ],
)
def test_gpus_have_cores_of_their_own_and_some_are_left(
    cores: int, count: int, expected: list[tuple[int, ...]]
) -> None:
    assert shares(list(range(cores)), count) == expected


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_a_large_host_keeps_most_cores_for_compilers(count: int) -> None:
    cores = list(range(16 * count))
    dealt = [core for share in shares(cores, count) for core in share]
    assert len(dealt) == len(set(dealt)) == 4 * count
    made = [Device("cuda", "m", f"GPU-{n}", share) for n, share in enumerate(shares(cores, count))]
    assert cores_beside(made, frozenset(cores)) == frozenset(cores) - set(dealt)


def test_compilers_have_a_core_even_where_devices_use_all() -> None:
    assert cores_beside([Device("cpu", "m", "u", (3,))], frozenset((3,))) == {3}
    assert cores_beside([cpu_device(frozenset((3, 4, 5)))], frozenset((3, 4, 5))) == {3}
