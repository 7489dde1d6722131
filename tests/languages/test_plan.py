"""From a manifest to the steps of a call, and every mistake found on the way."""

from __future__ import annotations

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.device import Device
from swarm.errors import BadInput
from swarm.languages.dry_run import Case, StaticFacts, cases, check_plan, most_blocks, static_facts
from swarm.languages.numbers import pack, pattern
from swarm.languages.plan import Plan
from swarm.languages.planning import make_plan
from swarm.languages.resolve import resolve
from swarm.languages.steps import Calls, KernelStep, Map, MemsetStep, Pointer, Value
from swarm.workload import parse_workloads
from tests.languages.plans import (
    AXES,
    DEFINITION,
    HEAD,
    LAUNCH,
    SCALARS,
    Card,
    definition,
    kernel_info,
    manifest,
    plan,
)

H200 = StaticFacts(132, 232448, 50 << 20, 90)
MAP = """
[tensormap.a]
of = "x"
dims = ["width", "n"]
box = [64, 4]
"""
MAPPED = LAUNCH.replace('"n:i32"', '"a"')
SCRATCH = """
[scratch.partial]
dtype = "float32"
shape = ["n", 3]
"""


def calls(tables: str, card: Card | None = None, **sizes: int) -> Calls:
    """Return what these tables come to for n = 4, or the n given."""
    axes = {**AXES, **sizes, "cells": sizes.get("n", 4) * 256}
    return resolve(plan(tables), axes, SCALARS, card or Card())


def launches(found: Calls) -> list[KernelStep]:
    return [step for step in found.steps if isinstance(step, KernelStep)]


def test_a_launch_is_worked_out_with_its_arguments_as_bytes() -> None:
    (step,) = calls(
        """
[[launch]]
kernel = "rows<8>"
grid = ["ceildiv(n, 3)", "half // 64"]
block = [32, "4", 1]
smem = "width * 4"
args = ["x", "y", "n:i32", "cells:i64", "eps:f32", "1 / width:f64", "1:bf16", "0.1:f16", "steps > 2:bool"]
"""
    ).steps
    assert step == KernelStep(
        kernel="rows<8>",
        variant=0,
        grid=(2, 2, 1),
        block=(32, 4, 1),
        smem=1024,
        cluster=None,
        cooperative=False,
        pdl=False,
        args=(
            Pointer("input:x"),
            Pointer("output:y"),
            Value(struct.pack("<i", 4)),
            Value(struct.pack("<q", 1024)),
            Value(struct.pack("<f", 1e-5)),
            Value(struct.pack("<d", 1 / 256)),
            Value(b"\x80\x3f"),
            Value(struct.pack("<e", 0.1)),
            Value(b"\1"),
        ),
        launch=0,
    )


def test_a_launch_whose_when_does_not_hold_is_left_out_with_its_map() -> None:
    tables = MAP + LAUNCH + 'when = "n <= 64"\n' + MAPPED.replace("rows<8>", "many") + 'when = "n > 64"\n'
    few, many = calls(tables), calls(tables, n=65)
    assert [step.kernel for step in launches(few)] == ["rows<8>"] and few.maps == {}
    assert [step.kernel for step in launches(many)] == ["many"] and list(many.maps) == ["a"]


def test_launches_that_differ_in_parameters_are_builds_of_their_own() -> None:
    tables = "[params]\nBLOCK = 128\n" + LAUNCH.replace("[128]", '["BLOCK"]')
    again = LAUNCH.replace("[128]", '["BLOCK"]') + "params = { BLOCK = 256 }\n"
    made = plan(tables + again + LAUNCH.replace("rows<8>", "other") + again)
    assert made.variants == ({"BLOCK": 128}, {"BLOCK": 256})
    assert made.kernels(0) == ("rows<8>", "other") and made.kernels(1) == ("rows<8>",)
    steps = launches(resolve(made, AXES, SCALARS, Card()))
    assert [(step.variant, step.block[0]) for step in steps] == [(0, 128), (1, 256), (0, 128), (1, 256)]


def test_a_repeat_counts_in_its_index() -> None:
    steps = launches(calls(LAUNCH.replace('"n:i32"', '"k * n:i64"') + 'repeat = "steps"\nindex = "k"\n'))
    assert [step.args[2] for step in steps] == [Value(struct.pack("<q", k * 4)) for k in range(3)]
    assert len(launches(calls(LAUNCH + LAUNCH + "repeat = 0\n"))) == 1


def test_steps_run_fills_first_then_in_the_order_of_the_launches() -> None:
    found = calls(
        SCRATCH
        + "fill = 1.5\n"
        + LAUNCH
        + LAUNCH.replace("rows<8>", "last")
        + '[[memset]]\ntarget = "y"\nbefore = 1\noffset = "n"\nbytes = 8\nvalue = 7\n'
        + '[[memset]]\ntarget = "partial"\n'
        + '[[memset]]\ntarget = "y"\nbefore = 2\nwhen = "n > 4"\n'
        + '[[memset]]\ntarget = "partial"\nbefore = 2\noffset = 40\n'
    )
    assert [step if isinstance(step, MemsetStep) else step.kernel for step in found.steps] == [
        MemsetStep("scratch:partial", 0, 48, 0x3FC00000, 4),
        MemsetStep("scratch:partial", 0, 48, 0),
        "rows<8>",
        MemsetStep("output:y", 4, 8, 7),
        "last",
        MemsetStep("scratch:partial", 40, 8, 0),
    ]
    assert found.scratch == {"scratch:partial": 48} and found.filled == {"scratch:partial"}


def test_scratch_without_a_fill_is_left_to_be_poisoned() -> None:
    found = calls(SCRATCH + LAUNCH)
    assert found.scratch == {"scratch:partial": 48} and found.filled == frozenset()


def test_a_launch_overlaps_with_a_launch_before_it_only() -> None:
    memset = '[[memset]]\ntarget = "y"\nbefore = 2\n'
    steps = launches(calls(memset + (LAUNCH + "pdl = true\n") * 3 + (LAUNCH + "pdl = true\nrepeat = 2\n")))
    assert [step.pdl for step in steps] == [False, True, False, True, True]


def test_occupancy_is_asked_for_the_launch_that_is_meant() -> None:
    first = LAUNCH.replace("rows<8>", "first<1, 2>").replace("[128]", '["half"]') + "smem = 100\n"
    second = LAUNCH.replace(
        '["n", 1, 1]', '["max_active_blocks(kernel)", "max_active_clusters(\'first<1,2>\')"]'
    )
    card = Card()
    steps = launches(calls(first + second, card))
    assert steps[1].grid == (2, 7, 1)
    assert card.asked == [("rows<8>", 0, 128, 0), ("first<1, 2>", 0, 128, 100, (1, 1, 1))]


def test_scratch_may_depend_on_what_fits() -> None:
    shape = """["num_sms * max_active_blocks('rows<8>')"]"""
    assert calls(SCRATCH.replace('["n", 3]', shape) + LAUNCH).scratch == {"scratch:partial": 132 * 2 * 4}


def test_a_tensor_map_has_defaults_and_its_numbers() -> None:
    found = calls(MAP + MAPPED)
    spec = found.maps["a"]
    assert launches(found)[0].args[2] == Map("a") and found.scratch == {}
    assert (spec.buffer, spec.type, spec.dims, spec.strides) == ("input:x", "BFLOAT16", (256, 4), (512,))
    assert (spec.box, spec.element_strides, spec.offsets) == ((64, 4), (1, 1), (0,))
    assert (spec.swizzle, spec.interleave) == ("SWIZZLE_NONE", "INTERLEAVE_NONE")
    assert (spec.l2, spec.oob) == ("L2_PROMOTION_NONE", "FLOAT_OOB_FILL_NONE")


def test_an_array_of_tensor_maps_lies_in_device_memory() -> None:
    several = (
        MAP.replace('"n"]', "1]") + 'in = "scratch"\ncount = "n"\nindex = "g"\noffset = "g * width * 2"\n'
    )
    found = calls(several + MAPPED)
    assert launches(found)[0].args[2] == Pointer("map:a")
    assert found.scratch == {"map:a": 4 * 128} and found.filled == {"map:a"}
    assert found.maps["a"].offsets == (0, 512, 1024, 1536)


def test_the_runner_reads_what_the_judge_wrote() -> None:
    mapped = MAP + "strides = [512]\n" + MAPPED + "cluster = [1]\n"
    made = plan(SCRATCH + "fill = inf\n" + mapped + '[[memset]]\ntarget = "y"\n')
    assert Plan.from_json(json.loads(json.dumps(made.to_json()))) == made


WRONG_NAMES = {
    "no such memory": (LAUNCH.replace('"y"', '"z"'), "launch[0].args[1]: there is no memory 'z'; "),
    "a number as memory": (
        LAUNCH.replace('"n:i32"', '"n"'),
        "launch[0].args[2]: 'n' is a number without a type; write \"n:i32\" or the like",
    ),
    "a name that means nothing": (
        LAUNCH.replace('"n", 1', '"m", 1'),
        "launch[0].grid[0]: 'm' uses 'm', which means nothing; ",
    ),
    "a word": (
        '[params]\nMODE = "fast"\n' + LAUNCH.replace('"n", 1', '"MODE", 1'),
        "launch[0].grid[0]: 'MODE' uses 'MODE', which is a word; words are for macros only",
    ),
    "the index of another launch": (
        LAUNCH + "repeat = 2\n" + LAUNCH.replace('"n:i32"', '"i:i32"'),
        "launch[1].args[2]: 'i' uses 'i', which means nothing; ",
    ),
    "occupancy of no kernel": (
        LAUNCH.replace('"n", 1', '"max_active_blocks(row)", 1'),
        "launch[0].grid[0]: 'max_active_blocks(row)' asks for a kernel 'row'; did you mean 'rows<8>'?",
    ),
    "occupancy of itself outside a launch": (
        SCRATCH.replace('"n", 3', '"max_active_blocks(kernel)"') + LAUNCH,
        "scratch.partial.shape[0]: 'max_active_blocks(kernel)' asks for a kernel 'kernel'; ",
    ),
    "occupancy of a block that depends on it": (
        LAUNCH.replace("[128]", '["max_active_blocks(kernel)"]'),
        "launch[0].block[0]: 'max_active_blocks(kernel)' calls max_active_blocks; "
        "write what it comes to without it",
    ),
    "scratch called like an input": (
        SCRATCH.replace("partial", "w") + LAUNCH,
        "scratch.w: 'w' is part of the problem too; choose another name",
    ),
    "an index called like an axis": (
        LAUNCH + 'repeat = 2\nindex = "n"\n',
        "launch[0].index: 'n' is part of the problem too; choose another name",
    ),
    "a memset of an input": (
        LAUNCH + '[[memset]]\ntarget = "x"\n',
        "memset[0].target: 'x' is an input; inputs stay as they are",
    ),
    "a map of nothing": (
        MAP.replace('"x"', '"xx"') + LAUNCH,
        "tensormap.a.of: there is no memory 'xx'; did you mean 'x'?",
    ),
    "too many builds": (
        "[params]\nBLOCK = 0\n" + "".join(f"{LAUNCH}params = {{ BLOCK = {n} }}\n" for n in range(20)),
        "launch[16].params: 17 builds; use at most 16 in a manifest",
    ),
}


@pytest.mark.parametrize("case", WRONG_NAMES)
def test_a_name_that_means_nothing_is_found_before_anything_is_compiled(case: str) -> None:
    tables, message = WRONG_NAMES[case]
    with pytest.raises(BadInput) as caught:
        plan(tables)
    line = str(caught.value)
    assert line.startswith(f"solution/solution.toml: {message}") and "\n" not in line


def test_a_parameter_may_not_be_called_like_an_axis() -> None:
    axes = {**DEFINITION["axes"], "BLOCK": {"type": "const", "value": 1}}
    problem = definition(axes=axes)
    with pytest.raises(BadInput, match=r"params\.BLOCK: 'BLOCK' is part of the problem too; choose another"):
        make_plan(manifest(HEAD + "[params]\nBLOCK = 2\n" + LAUNCH), problem)


WRONG_NUMBERS = {
    "no blocks": (
        LAUNCH.replace('"n", 1', '"n // 9", 1'),
        "launch[0].grid[0]: 'n // 9' is 0 with n = 4; it must be 1 or more; `when` can leave the step out",
    ),
    "division by zero": (
        LAUNCH.replace('"n", 1', '"ceildiv(width, n - 4)", 1'),
        "launch[0].grid[0]: expression 'ceildiv(width, n - 4)' divides by zero with n = 4, width = 256; ",
    ),
    "half a block": (
        LAUNCH.replace('"n", 1', '"n / 8", 1'),
        "launch[0].grid[0]: 'n / 8' is 0.5, not an integer with n = 4; use // or ceildiv",
    ),
    "grid too high": (
        LAUNCH.replace('"n", 1, 1', '1, "n * 16384", 1'),
        "launch[0].grid[1]: 65536 with n = 4; use at most 65535",
    ),
    "too many threads": (
        LAUNCH.replace("[128]", '["width", 8]'),
        "launch[0].block: 2048 threads with n = 4, width = 256; use at most 1024",
    ),
    "block too deep": (LAUNCH.replace("[128]", "[1, 1, 65]"), "launch[0].block[2]: 65 "),
    "too much shared memory": (
        LAUNCH + 'smem = "width * 1024"\n',
        "launch[0].smem: 262144 bytes with n = 4, width = 256; a block has at most 232448",
    ),
    "negative shared memory": (LAUNCH + 'smem = "0 - n"\n', "launch[0].smem: '0 - n' is -4 with n = 4; "),
    "too large a cluster": (
        LAUNCH + 'cluster = [4, 5]\n',
        "launch[0].cluster: 20 blocks with n = 4; use at most 16",
    ),
    "blocks that are no clusters": (
        LAUNCH + "cluster = [3]\n",
        "launch[0].grid[0]: 4 blocks in clusters of 3 with n = 4; use a multiple of 3",
    ),
    "cooperative launch that does not fit": (
        LAUNCH.replace('"n", 1', '"n * 67", 1') + "cooperative = true\n",
        "launch[0].grid: a cooperative launch of 268 blocks; 264 of them fit on the device with n = 4; "
        "use num_sms * max_active_blocks(kernel)",
    ),
    "endless repeat": (
        LAUNCH + 'repeat = "2 ** 40"\n',
        "launch[0].repeat: '2 ** 40' is 1099511627776, and a call has 0 steps before it; "
        "a call may have 0 to 1024 launches and memsets",
    ),
    "expressions without an end": (
        LAUNCH.replace('"n:i32"', ", ".join(['"i + n * 16:i32"'] * 100)) + "repeat = 1000\n",
        "launch[0].args[91]: a call needs too many values; repeat less often, or write less",
    ),
    "argument that does not fit": (
        LAUNCH.replace("n:i32", "n * 2 ** 30:i32"),
        "launch[0].args[2] 'n * 2 ** 30': is 4294967296, which i32 does not hold; use a wider type",
    ),
    "argument that is no integer": (
        LAUNCH.replace("n:i32", "eps:i32"),
        "launch[0].args[2] 'eps': is 1e-05, not an integer; use //, ceildiv or a float type",
    ),
    "nothing to do": (
        LAUNCH + 'when = "n > 4"\n',
        "launch: nothing is launched with n = 4; let a `when` hold",
    ),
    "nothing to do on a device where more fits": (
        LAUNCH + 'when = "n > 99 + max_active_blocks(kernel)"\n',
        "launch: nothing is launched with n = 4; let a `when` hold",
    ),
    "a very long expression": (
        LAUNCH.replace('"n", 1', f'"{" + ".join(["0"] * 100)}", 1'),
        "launch[0].grid[0]: '0 + 0 + 0 + 0 + 0 + 0 + 0 + 0 + 0 + 0 + 0 + 0 + 0 + 0 + 0 + …' is 0; ",
    ),
    "bytes outside": (
        LAUNCH + '[[memset]]\ntarget = "y"\nbytes = "cells * 4"\n',
        "memset[0]: bytes 0 to 4096 are not in output:y, which has 2048; set bytes inside it",
    ),
    "endless scratch": (
        SCRATCH.replace('"n", 3', '"n", "2 ** 50"') + LAUNCH,
        "scratch.partial.shape: 18014398509481984 bytes with n = 4; use less scratch",
    ),
    "fill that does not fit": (
        SCRATCH.replace("float32", "int8") + "fill = 300\n" + LAUNCH,
        "scratch.partial.fill: is 300.0, which i8 does not hold; use a wider type",
    ),
    "fill of eight bytes": (
        SCRATCH.replace("float32", "float64") + "fill = 1\n" + LAUNCH,
        "scratch.partial.fill: fill 1 of float64; fill it in a kernel: it needs 8 bytes",
    ),
    "box too large": (
        MAP.replace("[64, 4]", "[64, 257]") + MAPPED,
        "tensormap.a.box[1]: '257' is 257; use at most 256 and several copies",
    ),
    "box too wide for its swizzle": (
        MAP.replace("[64, 4]", "[128, 4]") + "swizzle = 128\n" + MAPPED,
        "tensormap.a.box[0]: 256 bytes in a row of the box, with swizzle 128; "
        "use at most 64 elements, and several copies",
    ),
    "box of odd bytes": (
        MAP.replace("[64, 4]", "[4, 4]") + MAPPED,
        "tensormap.a.box[0]: 4 elements of 2 bytes; use a multiple of 16 bytes",
    ),
    "rows of odd bytes": (
        MAP.replace('["width", "n"]', '["width - 1", "n"]') + MAPPED,
        "tensormap.a.dims[0]: the stride of dimension 1 is 510 bytes; ",
    ),
    "strides of odd bytes": (
        MAP + "strides = [100]\n" + MAPPED,
        "tensormap.a.strides[0]: the stride of dimension 1 is 100 bytes; "
        "TMA wants a multiple of 16 below 2**40; ",
    ),
    "map that leaves its memory": (
        MAP.replace('"n"]', '"n + 1"]') + MAPPED,
        "tensormap.a.dims: map 0 reaches byte 2560 of input:x, which has 2048; "
        "keep dims, strides and offset inside the memory",
    ),
    "map at an odd byte": (
        MAP.replace('"n"]', '"n - 1"]') + "offset = 8\n" + MAPPED,
        "tensormap.a.offset: map 0 starts at byte 8; use a multiple of 16",
    ),
    "interleaved rows": (
        MAP + "interleave = 16\n" + MAPPED,
        "tensormap.a.interleave: 2 dims; interleaving needs at least 3",
    ),
    "interleaving with another swizzle": (
        MAP.replace('["width", "n"]', '["half", 2, "n"]').replace("[64, 4]", "[16, 2, 4]")
        + "interleave = 32\nswizzle = 64\n"
        + MAPPED,
        "tensormap.a.interleave: interleave 32 without swizzle 32; write swizzle = 32",
    ),
    "too many maps": (
        MAP + "count = 5000\n" + MAPPED,
        "tensormap.a.count: '5000' is 5000; use at most 4096",
    ),
    "nan among integers": (
        MAP + 'dtype = "int16"\nfill = "nan"\n' + MAPPED,
        "tensormap.a.fill: nan for int16; only floats have a NaN here",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_NUMBERS)
def test_a_number_that_no_device_takes_names_table_key_and_values(case: str) -> None:
    tables, message = WRONG_NUMBERS[case]
    with pytest.raises(BadInput) as caught:
        calls(tables)
    line = str(caught.value)
    assert line.startswith(message) and "\n" not in line
    assert message.endswith(("; ", "65 ")) or line == message


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            LAUNCH + "cluster = [2]\n",
            "launch[0].cluster: a cluster on sm_80 with n = 4; it needs sm_90 or newer",
        ),
        (MAP + MAPPED, "tensormap.a: a tensor map on sm_80; it needs sm_90 or newer"),
        (LAUNCH * 2 + "pdl = true\n", "launch[1]: pdl on sm_80 with n = 4; it needs sm_90 or newer"),
    ],
)
def test_what_an_older_device_lacks_is_said(tables: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        calls(tables, Card(arch=80))
    assert str(caught.value) == message


def dry(tables: str, *kernels: object, facts: StaticFacts = H200, **info: object) -> None:
    """Walk a plan over two workloads."""
    found = [info for info in kernels if info is not None] or [kernel_info(**info)]  # type: ignore[arg-type]
    given = [Case({**AXES, "n": n, "cells": n * 256}, {}, SCALARS) for n in (4, 4096)]
    check_plan(plan(tables), given, facts, found)  # type: ignore[arg-type]


def test_a_good_plan_passes_its_dry_run() -> None:
    dry(LAUNCH)
    dry(MAP + MAPPED, kernel_info(sizes=(8, 8, 128)))
    dry(LAUNCH.replace('"n", 1', '"num_sms * max_active_blocks(kernel)", 1') + "cooperative = true\n")


@pytest.mark.parametrize(
    ("tables", "info", "message"),
    [
        (LAUNCH, {"sizes": (8, 8)},
         "launch[0].args: 3 arguments, and rows<8> takes 2; give one for each parameter, in order"),
        (LAUNCH, {"sizes": (8, 8, 8)}, "launch[0].args[2]: 'n' as i32 has 4 bytes, rows<8> takes 8; "
         "let their types agree"),
        (LAUNCH, {"name": "rows<4>"}, "launch[0]: the sources have no kernel 'rows<8>'; check its name"),
        (LAUNCH, {"max_threads": 64}, "launch[0].block: 128 threads, and rows<8> is built for 64; "
         "raise its __launch_bounds__"),
        (LAUNCH.replace("[128]", "[1024]"), {"registers": 72},
         "launch[0].block: 1024 threads of 72 registers; "),
        (LAUNCH + "smem = 200000\n", {"static_smem_bytes": 40000},
         "launch[0].smem: 200000 bytes beside the 40000 that rows<8> declares; a block has at most 232448"),
        (LAUNCH.replace('"n", 1', '"n * 300", 1') + "cooperative = true\n", {"registers": 255},
         "launch[0].grid: a cooperative launch of 1200 blocks; 264 of them fit on the device with n = 4; "),
        (LAUNCH.replace('"n", 1', '1, "n * 16"'), {}, "launch[0].grid[1]: 65536 with n = 4096; "
         "use at most 65535"),
        (LAUNCH, {"cluster": (8, 1, 1)},
         "launch[0].grid[0]: 4 blocks, and rows<8> is built for clusters of 8; use a multiple of 8"),
        (LAUNCH + "cluster = [4]\n", {"cluster": (2, 1, 1)},
         "launch[0].cluster: (4, 1, 1), and rows<8> is built for (2, 1, 1); leave it out, or remove "),
        (LAUNCH + 'when = "eps > 0"\n', {},
         "launch[0].when: expression 'eps > 0' needs 'eps', which has no value; "),
    ],
)  # fmt: skip
def test_the_dry_run_finds_what_the_kernel_or_a_workload_does_not_take(
    tables: str, info: dict[str, object], message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        dry(tables, **info)
    line = str(caught.value)
    assert line.startswith(f"solution/solution.toml: {message}") and "\n" not in line


def test_scalars_that_change_with_every_call_are_guessed_for_arguments() -> None:
    dry(LAUNCH.replace("n:i32", "eps:f32"))


def test_a_dry_run_takes_its_cases_from_the_workloads() -> None:
    line = {
        "uuid": "a",
        "axes": {"n": 3},
        "inputs": {
            "x": {"type": "random"},
            "w": {"type": "random"},
            "eps": {"type": "scalar", "value": 0.5},
            "steps": {"type": "random"},
        },
    }
    workloads = parse_workloads(json.dumps(line).encode(), "workload.jsonl", definition())
    (case,) = cases(definition(), workloads)
    assert case == Case({"n": 3, "width": 256, "half": 128, "cells": 768}, {"eps": 0.5}, {"steps": 1})


@pytest.mark.parametrize(
    ("threads", "registers", "smem", "blocks"),
    [
        (128, 32, 0, 16),
        (1024, 32, 0, 2),
        (32, 16, 0, 32),
        (256, 128, 0, 2),
        (128, 32, 100_000, 2),
        (128, 32, 232448, 1),
    ],
)
def test_what_fits_on_a_multiprocessor_is_known_without_one(
    threads: int, registers: int, smem: int, blocks: int
) -> None:
    assert most_blocks(kernel_info(registers=registers), threads, smem, H200) == blocks


def test_a_device_is_known_by_its_architecture() -> None:
    device = Device("cuda", "nvidia-h200", "GPU-1", (0,), arch="sm_90a", multiprocessors=132)
    assert static_facts(device) == H200


def test_a_manifest_of_many_kinds_of_memory_keeps_them_apart() -> None:
    over_scratch = MAP.replace('"x"', '"partial"').replace('["width", "n"]', "[4, 3]")
    found = calls(SCRATCH + over_scratch.replace("[64, 4]", "[4, 1]") + MAPPED)
    assert found.maps["a"].buffer == "scratch:partial" and found.maps["a"].type == "FLOAT32"


@given(value=st.floats(-1e38, 1e38))
def test_bfloat16_is_the_nearest_and_ties_go_to_even(value: float) -> None:
    (bits,) = struct.unpack("<H", pack(value, "bf16", "here"))

    def as_float(pattern: int) -> float:
        return float(struct.unpack("<f", struct.pack("<I", pattern << 16))[0])

    (single,) = struct.unpack("<f", struct.pack("<f", value))
    near = abs(as_float(bits) - single)
    others = [as_float(other) for other in (bits - 1, bits + 1) if 0 <= other <= 0xFFFF]
    assert all(near <= abs(other - single) for other in others if math.isfinite(other))
    if any(near == abs(other - single) for other in others):
        assert bits % 2 == 0 or near == 0


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (0.0, "float8_e4m3fn", (0, 1)),
        (1.0, "float32", (0x3F800000, 4)),
        (1.0, "bfloat16", (0x3F80, 2)),
        (-math.inf, "bfloat16", (0xFF80, 2)),
        (math.inf, "float32", (0x7F800000, 4)),
        (-1.0, "int64", (0xFF, 1)),
        (7.0, "int32", (7, 4)),
        (1.0, "bool", (1, 1)),
    ],
)
def test_a_fill_is_a_pattern(value: float, dtype: str, expected: tuple[int, int]) -> None:
    assert pattern(value, dtype, "here") == expected


FORMULAS = st.recursive(
    st.sampled_from(
        ["n", "width", "half", "steps", "eps", "num_sms", "BLOCK", "i", "max_active_blocks(kernel)"]
    )
    | st.integers(-3, 70000).map(str),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "/", "%", "<"]), inner).map(
        lambda t: f"({' '.join(t)})"
    ),
    max_leaves=5,
)


@given(data=st.data())
def test_any_plan_resolves_within_the_limits_or_is_bad_input(data: st.DataObject) -> None:
    def some(key: str) -> str:
        return f"{key} = {json.dumps(data.draw(FORMULAS))}\n" if data.draw(st.booleans()) else ""

    def listed(key: str) -> str:
        return f"{key} = {json.dumps(data.draw(st.lists(FORMULAS, min_size=1, max_size=3)))}\n"

    tables = (
        '[params]\nBLOCK = 64\n[scratch.s]\ndtype = "bfloat16"\n'
        + listed("shape")
        + '[tensormap.t]\nof = "s"\nin = "scratch"\nbox = [8, 2]\n'
        + f"dims = {json.dumps(data.draw(st.lists(FORMULAS, min_size=2, max_size=2)))}\n"
        + some("count")
        + some("offset")
        + '[[launch]]\nkernel = "k"\n'
        + "".join(listed(key) for key in ("grid", "block"))
        + "".join(some(key) for key in ("when", "smem", "repeat"))
        + f'args = ["x", "t", {json.dumps(data.draw(FORMULAS) + ":i32")}]\n'
        + '[[memset]]\ntarget = "s"\n'
        + some("offset")
        + some("bytes")
    )
    try:
        found = calls(tables, n=data.draw(st.integers(0, 10**6)))
    except BadInput as error:
        assert error.remedy and "\n" not in str(error)
        assert any(table in str(error) for table in ("launch", "scratch.s", "tensormap.t", "memset"))
        return
    assert 1 <= len(found.steps) <= 1024
    for step in found.steps:
        if isinstance(step, MemsetStep):
            assert step.offset >= 0 and step.offset + step.nbytes <= found.scratch["scratch:s"]
        else:
            assert all(0 < g <= 2**31 for g in step.grid) and 0 < math.prod(step.block) <= 1024
            assert 0 <= step.smem <= 232448


def test_a_hostile_manifest_costs_little() -> None:
    deep = "(" * 90 + "n" + ")" * 90
    text = HEAD + LAUNCH.replace('"n:i32"', ", ".join([f'"{deep} + 1:i32"'] * 120))
    assert len(manifest(text).launch[0].args) == 122
    resolve(plan(LAUNCH.replace('"n:i32"', ", ".join([f'"{deep} + 1:i32"'] * 120))), AXES, SCALARS, Card())
