"""The judge's kernels: what they write, what they notice, and that their rules are check.py's."""

from __future__ import annotations

import ctypes
import math
import random
import re
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarm.definition import DType
from swarm.judge import check, elements
from swarm.judge.cuda import contents, kernels
from swarm.judge.cuda.contents import FORMS, PATTERN, POOL, ROW_FORMS, TYPES, Mode, region, repeated
from swarm.judge.cuda.kernels import Pair, Pairs, Regions
from swarm.judge.inputs import OUTLIER_FACTOR, OUTLIER_STRIDE
from swarm.judge.kinds import Form, Kind, draw_rows
from swarm.judge.slots import GUARD_BYTES, Shape
from swarm.problem import Limits
from tests.judge.cuda.conftest import Bench

ELEMENTS, CONTENTS, KERNELS = (
    (Path(kernels.__file__).parent / name).read_text() for name in ("elements.h", "contents.h", "kernels.cu")
)
ROOM = 1 << 21
DTYPES = [dtype for dtype in DType if dtype is not DType.FLOAT4_E2M1FN_X2]
FLOATS = [dtype for dtype in DTYPES if dtype.is_float and not dtype.is_packed]
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Ground:
    """An arena with one buffer in it, far enough from both ends."""

    def __init__(self, bench: Bench, dtype: DType, count: int) -> None:
        self.bench, self.dtype, self.count = bench, dtype, count
        self.nbytes = count * elements.stored_dtype(dtype).itemsize
        self.arena = bench.arena(2 * (self.nbytes + 4 * GUARD_BYTES))
        self.address = self.arena.address + 2 * GUARD_BYTES
        self.aside = self.address + -(-self.nbytes // 256) * 256 + 3 * GUARD_BYTES

    def describe(self, kind: int, mode: Mode = Mode.VERIFY, **fields: object) -> bytes:
        return region(self.dtype, self.address, self.count, kind=kind, mode=mode, **fields)  # type: ignore[arg-type]

    def filled(self, kind: int, **fields: object) -> torch.Tensor:
        """Fill it and return what it holds, as numbers."""
        self.bench.kernels.fill(Regions([self.describe(kind, **fields)]))
        return elements.comparable(self.stored(), self.dtype)

    def stored(self) -> torch.Tensor:
        data = self.bench.read(self.address, self.nbytes)
        return torch.frombuffer(bytearray(data), dtype=elements.stored_dtype(self.dtype))


def enumerators(text: str, name: str) -> list[str]:
    found = re.search(rf"enum {name} {{([^}}]*)}}", text)
    assert found is not None
    return [item.strip() for item in found[1].split(",")]


def test_the_header_and_python_number_things_alike() -> None:
    kinds = enumerators(CONTENTS, "Kind")
    assert [kinds.index(form.name) for form in FORMS] == list(FORMS.values())
    assert (kinds.index("POOL"), kinds.index("PATTERN")) == (POOL, PATTERN)
    assert [kinds.index(form.name) for form in ROW_FORMS] == list(ROW_FORMS.values())
    assert enumerators(CONTENTS, "Spread") == ["AS_DRAWN", "SCALED", "OUTLIERS", "STRUCTURED"]
    assert enumerators(KERNELS, "Mode") == [mode.name for mode in Mode]
    short = {"FLOAT8_E4M3FN": "E4M3", "FLOAT8_E5M2": "E5M2", "BFLOAT16": "BF16", "BOOL": "BOOL"}
    types = enumerators(ELEMENTS, "Type")
    for dtype, number in TYPES.items():
        name = short.get(dtype.name) or ("E2M1" if dtype.is_packed else dtype.name[0] + str(dtype.bits))
        assert types[number] == name
    assert (
        f"OUTLIER_FACTOR = {OUTLIER_FACTOR}f" in CONTENTS
        and f"OUTLIER_STRIDE = {OUTLIER_STRIDE};" in CONTENTS
    )
    assert f"GUARD_BYTES = {GUARD_BYTES}," in KERNELS
    assert contents.REGION.size == 128


def test_conversions_are_torchs(library: ctypes.CDLL) -> None:
    """Every code of the small formats, and floats of all magnitudes."""
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(200_000, generator=generator) * torch.exp(
        torch.empty(200_000).uniform_(-40, 12, generator=generator)
    )
    for dtype in (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT8_E4M3FN, DType.FLOAT8_E5M2):
        kind, bits = elements.torch_dtype(dtype), dtype.bits
        every = torch.arange(1 << bits, dtype=torch.int32)
        stored = every.to(torch.uint8 if bits == 8 else torch.int16).view(kind)
        decoded = torch.empty(len(every))
        library.decode_all(
            TYPES[dtype],
            ctypes.c_void_p(every.data_ptr()),
            ctypes.c_void_p(decoded.data_ptr()),
            ctypes.c_uint64(len(every)),
        )
        assert torch.equal(decoded.nan_to_num(7e9), stored.float().nan_to_num(7e9))
        inside = values[values.abs() < 400] if dtype is DType.FLOAT8_E4M3FN else values
        codes = torch.empty(len(inside), dtype=torch.int32)
        library.encode_all(
            TYPES[dtype],
            ctypes.c_void_p(inside.data_ptr()),
            ctypes.c_void_p(codes.data_ptr()),
            ctypes.c_uint64(len(inside)),
        )
        wanted = inside.to(kind)
        got = codes.to(torch.uint8 if bits == 8 else torch.int16).view(kind)
        assert torch.equal(got.float(), wanted.float())


def test_random_words_are_philoxs(library: ctypes.CDLL) -> None:
    """Of seven rounds, as published with Random123 for a counter and a key of zeros."""
    words = (ctypes.c_uint32 * 4)()
    library.random_words(ctypes.c_uint64(0), ctypes.c_uint64(0), words)
    assert list(words) == [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]


@pytest.mark.parametrize("dtype", [DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16], ids=str)
def test_normal_numbers_are_normal(bench: Bench, dtype: DType) -> None:
    values = Ground(bench, dtype, 100_001).filled(FORMS[Form.NORMAL], key=77, a=0.0, b=1.0).double()
    assert abs(float(values.mean())) < 0.02
    assert abs(float(values.std()) - 1) < 0.02
    assert abs(float((values**3).mean())) < 0.1
    assert abs(float((values**4).mean()) - 3) < 0.2
    inside = [float((values.abs() < bound).double().mean()) for bound in (0.5, 1.0, 2.0)]
    assert inside == pytest.approx([0.3829, 0.6827, 0.9545], abs=0.01)
    neighbours = torch.corrcoef(torch.stack((values[:-1], values[1:])))[0, 1]
    assert abs(float(neighbours)) < 0.02


def test_normal_numbers_have_the_mean_and_deviation_asked_for(bench: Bench) -> None:
    values = Ground(bench, DType.FLOAT32, 50_000).filled(FORMS[Form.NORMAL], key=1, a=100.0, b=3.0)
    assert float(values.mean()) == pytest.approx(100, abs=0.1)
    assert float(values.std()) == pytest.approx(3, abs=0.1)


def test_float64_uses_all_of_its_mantissa(bench: Bench) -> None:
    for form in (Form.NORMAL, Form.UNIFORM):
        values = Ground(bench, DType.FLOAT64, 1000).filled(FORMS[form], key=5, a=-1.0, b=1.0)
        assert not torch.equal(values, values.float().double())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_two_keys_give_two_contents_and_one_key_one(bench: Bench, dtype: DType) -> None:
    fields = {"low": 0, "span": 2 if dtype is DType.BOOL else 100, "a": 0.0, "b": 1.0}
    ground = Ground(bench, dtype, 1000)
    kind = FORMS[Form.NORMAL if dtype.is_float and not dtype.is_packed else Form.INTEGERS]
    first = ground.filled(kind, key=1, **fields)
    assert not torch.equal(first, ground.filled(kind, key=2, **fields))
    assert torch.equal(first, ground.filled(kind, key=1, **fields))


@pytest.mark.parametrize(
    ("dtype", "low", "span"),
    [
        (DType.INT64, -1024, 2048),
        (DType.INT32, -1024, 2048),
        (DType.INT16, -1024, 2048),
        (DType.INT8, -128, 256),
        (DType.BOOL, 0, 2),
        (DType.FLOAT4_E2M1, 0, 256),
        (DType.BFLOAT16, 0, 2),
        (DType.FLOAT64, -5, 11),
        (DType.INT64, -(1 << 62), 1 << 63),
    ],
    ids=str,
)
def test_integers_fill_their_range(bench: Bench, dtype: DType, low: int, span: int) -> None:
    ground = Ground(bench, dtype, 20_003)
    ground.filled(FORMS[Form.INTEGERS], key=9, low=low, span=span)
    values = ground.stored()
    values = values.double() if values.is_floating_point() else values.long()
    assert int(values.min()) >= low and int(values.max()) < low + span
    if span <= 256:
        assert len(values.unique()) == span
    else:
        assert int(values.min()) < low + span / 100 and int(values.max()) > low + span * 0.99


@pytest.mark.parametrize(
    ("form", "a", "b", "low", "high"),
    [
        (Form.UNIFORM, 2.0, 3.0, 2.0, 3.0),
        (Form.UNIFORM, 1.0, 1.0, 1.0, 1.0),
        (Form.BERNOULLI, 0.25, 0.0, 0.0, 1.0),
        (Form.CLAMPED, 2.0, 0.0, -2.0, 2.0),
        (Form.POSITIVE, 0.0, 0.0, 0.1, 8.0),
        (Form.SINE, 0.0, 0.0, -1.0, 1.0),
        (Form.COSINE, 0.0, 0.0, -1.0, 1.0),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "dtype", [DType.FLOAT32, DType.BFLOAT16, DType.FLOAT64, DType.FLOAT8_E4M3FN], ids=str
)
def test_forms_keep_their_range(
    bench: Bench, dtype: DType, form: Form, a: float, b: float, low: float, high: float
) -> None:
    values = Ground(bench, dtype, 5000).filled(FORMS[form], key=11, a=a, b=b).double()
    slack = 2.0 ** (-3 if dtype.bits == 8 else -7)
    assert float(values.min()) >= low - slack and float(values.max()) <= high + slack
    if form is Form.BERNOULLI:
        assert float(values.mean()) == pytest.approx(0.25, abs=0.03)
    elif high > low:
        assert len(values.unique()) >= 5


def test_a_causal_mask_is_zero_below_and_least_above(bench: Bench) -> None:
    least = torch.finfo(torch.float32).min
    values = Ground(bench, DType.FLOAT32, 2 * 37 * 37).filled(FORMS[Form.CAUSAL], a=least, span=37)
    wanted = torch.full((37, 37), least).triu(diagonal=1)
    assert torch.equal(values.view(2, 37, 37), torch.stack((wanted, wanted)))


def test_a_round_trip_leaves_nothing_behind(bench: Bench) -> None:
    for _ in range(3):
        bench.kernels.nothing()


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16, DType.INT8, DType.INT64], ids=str)
def test_a_pool_is_copied_from_its_start_and_goes_round(bench: Bench, dtype: DType) -> None:
    ground = Ground(bench, dtype, 1001)
    pool = (torch.arange(300) % 120).to(elements.stored_dtype(dtype))
    ground.bench.write(ground.aside, bytes(pool.untyped_storage()))
    ground.filled(POOL, source=ground.aside, source_count=300, start=250)
    assert torch.equal(ground.stored(), pool[(torch.arange(1001) + 250) % 300])


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16], ids=str)
@pytest.mark.parametrize("form", list(ROW_FORMS))
@pytest.mark.parametrize("row", [1, 2, 9, 64])
def test_rows_from_a_pool_keep_their_kind_and_never_come_again(
    bench: Bench, form: Form, dtype: DType, row: int
) -> None:
    rows = 6
    ground = Ground(bench, dtype, rows * row)
    pool = draw_rows(Kind(form), 2 * rows, row, dtype, torch.Generator().manual_seed(4))
    ground.bench.write(ground.aside, bytes(pool.untyped_storage()))
    given = {"source": ground.aside, "source_count": 2 * rows * row, "start": 8 * row, "span": row}
    one, other, again = (ground.filled(ROW_FORMS[form], key=k, **given).view(rows, row) for k in (5, 6, 5))
    own = pool.float().view(2 * rows, row).roll(-8, 0)[:rows]
    assert torch.equal(one, again)
    slack = 2.0 ** -(8 if dtype is DType.BFLOAT16 else 11) if dtype is not DType.FLOAT32 else 1e-6
    if row == 1:
        assert torch.equal(one, own), "there is nothing to change in it"
        return
    changed = (one != other).float().mean()
    assert changed > (0.7 if row > 2 or form is Form.SOFTMAX else 0.4)
    if form is Form.SOFTMAX:
        assert float(one.min()) > 0
        assert torch.allclose(one.sum(-1), own.sum(-1), atol=slack)
    else:
        assert bool((one.diff() <= slack).all()), "it still falls from one element to the next"
        assert bool((one <= own + slack).all())


@pytest.mark.parametrize("dtype", [DType.FLOAT64, DType.FLOAT32, DType.BFLOAT16], ids=str)
def test_spreads_do_what_they_say(bench: Bench, dtype: DType) -> None:
    ground = Ground(bench, dtype, 3000)
    normal = FORMS[Form.NORMAL]
    fields = {"key": 3, "a": 0.0, "b": 1.0}
    plain = ground.filled(normal, **fields)
    assert torch.allclose(ground.filled(normal, factor=2.0, spread=1, **fields), plain * 2)
    far = ground.filled(normal, factor=1.0, spread=2, start=100, **fields)
    hit = torch.arange(3000) % OUTLIER_STRIDE == 100
    assert torch.allclose(far[hit], plain[hit] * OUTLIER_FACTOR) and torch.equal(far[~hit], plain[~hit])
    holed = ground.filled(normal, factor=1.0, spread=3, zeros=(7, 1001), **fields)
    assert not holed[7:1001].any()
    assert torch.equal(holed[:7], plain[:7]) and torch.equal(holed[1001:], plain[1001:])


@SLOW
@given(
    dtype=st.sampled_from(DTYPES), count=st.integers(1, 3000), where=st.floats(0, 1), flip=st.integers(1, 255)
)
def test_one_changed_byte_is_found_where_it_is(
    bench: Bench, dtype: DType, count: int, where: float, flip: int
) -> None:
    ground = Ground(bench, dtype, count)
    row = ground.describe(FORMS[Form.INTEGERS], key=4, low=0, span=100)
    bench.kernels.fill(Regions([row]))
    (clean,) = bench.kernels.inspect(Regions([row]))
    assert clean.outside is None and clean.changed is None
    at = int(where * (ground.nbytes - 1))
    byte = bench.read(ground.address + at, 1)[0]
    bench.write(ground.address + at, bytes([byte ^ flip]))
    (found,) = bench.kernels.inspect(Regions([row]))
    assert found.changed == at and found.outside is None


@SLOW
@given(
    count=st.integers(0, 300),
    outside=st.integers(1, GUARD_BYTES),
    is_after=st.booleans(),
    mode=st.sampled_from(Mode),
)
def test_a_write_outside_is_found_where_it_is(
    bench: Bench, count: int, outside: int, is_after: bool, mode: Mode
) -> None:
    ground = Ground(bench, DType.INT8, count)
    row = ground.describe(PATTERN, mode, pattern=repeated(5, DType.INT8), source=ground.aside)
    bench.kernels.fill(Regions([row]))
    at = ground.address + (ground.nbytes + outside - 1 if is_after else -outside)
    byte = bench.read(at, 1)[0]
    bench.write(at, bytes([byte ^ 1]))
    (found,) = bench.kernels.inspect(Regions([row]))
    assert found.outside == (outside if is_after else -outside)
    assert found.changed is None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_poison_is_every_element_and_a_snapshot_every_byte(bench: Bench, dtype: DType) -> None:
    ground = Ground(bench, dtype, 1237)
    pattern = 0x5A5A5A5A5A5A5A11 & ((1 << 8 * elements.stored_dtype(dtype).itemsize) - 1)
    row = ground.describe(PATTERN, Mode.SNAPSHOT, pattern=repeated(pattern, dtype), source=ground.aside)
    bench.kernels.fill(Regions([row]))
    data = bench.read(ground.address, ground.nbytes)
    size = elements.stored_dtype(dtype).itemsize
    assert data == pattern.to_bytes(size, "little") * 1237
    bench.write(ground.address + 100, b"something else")
    bench.kernels.inspect(Regions([row]))
    assert bench.read(ground.aside, ground.nbytes) == bench.read(ground.address, ground.nbytes)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_light_look_sees_what_is_not_finite(bench: Bench, dtype: DType) -> None:
    ground = Ground(bench, dtype, 1001)
    row = ground.describe(PATTERN, Mode.LIGHT, pattern=0)
    bench.kernels.fill(Regions([row]))
    assert not bench.kernels.inspect(Regions([row]))[0].is_strange
    if not dtype.is_float or dtype.is_packed:
        return
    nan = torch.full((1,), math.nan).to(elements.torch_dtype(dtype))
    bench.write(ground.address + ground.nbytes - nan.element_size(), bytes(nan.untyped_storage()))
    assert bench.kernels.inspect(Regions([row]))[0].is_strange


def test_a_digest_says_whether_any_byte_changed(bench: Bench) -> None:
    ground = Ground(bench, DType.INT8, 5003)
    row = ground.describe(PATTERN, Mode.DIGEST, key=99, pattern=0)
    bench.kernels.fill(Regions([row]))
    seen = {bench.kernels.inspect(Regions([row]))[0].digest for _ in range(3)}
    assert len(seen) == 1
    for at in (0, 1, 15, 16, 4999, 5002):
        bench.write(ground.address + at, b"\1")
        seen.add(bench.kernels.inspect(Regions([row]))[0].digest)
    bench.write(ground.address, b"\0\1")
    seen.add(bench.kernels.inspect(Regions([row]))[0].digest)
    assert len(seen) == 8
    assert bench.kernels.inspect(Regions([row]))[0].outside is None


def test_many_buffers_of_all_kinds_take_one_launch(bench: Bench) -> None:
    arena = bench.arena(4 << 20)
    rows, at = [], arena.address
    for number in range(60):
        at += 2 * GUARD_BYTES
        dtype, count = DTYPES[number % len(DTYPES)], number * 97
        rows.append(region(dtype, at, count, kind=FORMS[Form.INTEGERS], key=number, low=0, span=100))
        at += -(-count * 8 // 256) * 256
    bench.kernels.fill(Regions(rows))
    assert all(f.changed is None and f.outside is None for f in bench.kernels.inspect(Regions(rows)))


def compared(
    bench: Bench,
    got: torch.Tensor,
    expected: torch.Tensor,
    dtype: DType,
    limits: Limits,
    poison: int = 0,
) -> tuple[check.Match, int]:
    """Compare by kernel; return the match, and where the reference itself is at fault."""
    ground = Ground(bench, dtype, got.numel() + 8 * expected.numel())
    bench.write(ground.address, _bytes(got))
    where = ground.address + -(-got.numel() * got.element_size() // 256) * 256
    bench.write(where, _bytes(expected))
    shape = Shape("y", dtype, (expected.numel(),))
    pair = Pair(shape, ground.address, where, poison)
    (found,) = bench.kernels.compare(Pairs([pair], limits))

    def values(index: int) -> tuple[int | float, int | float]:
        return bench.kernels.number(pair.got, index, dtype), bench.kernels.expected_number(
            where, index, dtype
        )

    return check.judge("y", found.stats, shape.dims, limits, values), found.invalid


def _bytes(values: torch.Tensor) -> bytes:
    return ctypes.string_at(values.data_ptr(), values.numel() * values.element_size())


@SLOW
@given(data=st.data())
def test_the_verdict_and_its_words_are_the_cpus(bench: Bench, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    count = data.draw(st.integers(1, 700))
    seed = data.draw(st.integers(0, 1 << 30))
    ratio = data.draw(st.sampled_from([0.5, 0.9, 0.99, 1.0]))
    cap = data.draw(st.sampled_from([None, 0.5, 30.0]))
    strange = data.draw(st.sampled_from([0.0, 0.0, 0.01, 0.5]))
    errors = data.draw(st.sampled_from([0.0, 0.001, 0.05, 0.6]))
    rtol = data.draw(st.sampled_from([0.0, 0.0103]))
    limits = Limits(data.draw(st.sampled_from([0.0, 0.0107])), rtol, ratio, cap, data.draw(st.booleans()))
    generator = torch.Generator().manual_seed(seed)

    def chosen(share: float) -> torch.Tensor:
        return torch.rand(got.shape, generator=generator) < share

    if dtype.is_float and not dtype.is_packed:
        got = torch.randn(count, generator=generator, dtype=torch.float64)
        if data.draw(st.booleans()):
            got.zero_()
        expected = got.clone().to(elements.torch_dtype(dtype)).to(elements.comparable_dtype(dtype))
        hit = chosen(errors)
        got[hit] += (1.3 + torch.arange(count, dtype=torch.float64) / 512)[hit]
        for value in (math.nan, math.inf, -math.inf):
            got[chosen(strange / 3)] = value
        if limits.allow_negative_inf and dtype is not DType.FLOAT8_E4M3FN:
            both = chosen(strange)
            got[both], expected[both] = -math.inf, -math.inf
        got = got.to(elements.torch_dtype(dtype))
        poison = elements.poison(dtype, random.Random(seed))
        if data.draw(st.booleans()):
            elements.as_bits(got)[chosen(strange)] = poison
    else:
        span = 2 if dtype is DType.BOOL else 256 if dtype.is_packed else 100
        stored = elements.stored_dtype(dtype)
        got = torch.randint(0, span, (count,), generator=generator).to(stored)
        expected = elements.comparable(got.clone(), dtype)
        hit = chosen(errors)
        got[hit] = (got[hit] ^ 1).to(stored)
        poison = 0
    cpu = check.compare("y", got, expected, dtype, (expected.numel(),), limits, poison)
    match, invalid = compared(bench, got, expected, dtype, limits, poison)
    assert invalid == -1
    assert match.reason == cpu.reason
    assert match.max_abs_error == pytest.approx(cpu.max_abs_error, rel=1e-6)
    assert match.max_rel_error == pytest.approx(cpu.max_rel_error, rel=1e-6)
    assert match.matched_ratio == cpu.matched_ratio


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_reference_that_is_not_finite_is_noticed(bench: Bench, dtype: DType, value: float) -> None:
    expected = torch.ones(50, dtype=elements.comparable_dtype(dtype))
    expected[17] = value
    got = torch.ones(50, dtype=elements.torch_dtype(dtype))
    for allows in (False, True):
        limits = Limits(0.01, 0.01, 1.0, None, allows)
        _, invalid = compared(bench, got, expected, dtype, limits)
        assert invalid == (-1 if allows and value == -math.inf else 17)


def test_integers_beyond_a_double_are_compared_exactly(bench: Bench) -> None:
    exact = Limits(0.0, 0.0, 1.0, None, False)
    expected = torch.tensor([2**60, 7, -(2**63)])
    assert compared(bench, expected.clone(), expected, DType.INT64, exact)[0].passed
    assert not compared(bench, expected + 1, expected, DType.INT64, exact)[0].passed


def test_several_outputs_are_counted_apart(bench: Bench) -> None:
    arena = bench.arena(8 << 20)
    pairs = []
    limits = Limits(0.01, 0.01, 1.0, None, False)
    for number, count in enumerate((5, 70_000, 1, 40_000, 16_384)):
        got = torch.zeros(count)
        got[:number] = 1.0
        at = arena.address + number * (1 << 20)
        bench.write(at, _bytes(got))
        bench.write(at + (1 << 19), _bytes(torch.zeros(count)))
        pairs.append(Pair(Shape("y", DType.FLOAT32, (count,)), at, at + (1 << 19), 0))
    assert [found.stats.bad for found in bench.kernels.compare(Pairs(pairs, limits))] == [0, 1, 1, 3, 4]
