"""How elements of each dtype lie in a buffer, are compared and poisoned; packed float4 is bytes."""

from __future__ import annotations

import math
import random
from functools import cache

import torch

from swarm.definition import DType

_STORED = {
    DType.BOOL: torch.uint8,
    DType.FLOAT4_E2M1: torch.uint8,
    DType.FLOAT4_E2M1FN_X2: torch.uint8,
}
"""Dtypes whose bytes are handled as plain bytes: a stray value in a bool is then seen, not normalised."""

PACKED = frozenset({DType.FLOAT4_E2M1, DType.FLOAT4_E2M1FN_X2})
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

_NAN = {
    DType.FLOAT64: (0x7FF8_0000_0000_0000, 50),
    DType.FLOAT32: (0x7FC0_0000, 21),
    DType.FLOAT16: (0x7E00, 8),
    DType.BFLOAT16: (0x7FC0, 5),
    DType.FLOAT8_E4M3FN: (0x7F, 0),
    DType.FLOAT8_E5M2: (0x7E, 0),
}
"""A quiet NaN and the bits of its payload that are free for a secret."""

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


@cache
def stored_dtype(dtype: DType) -> torch.dtype:
    """Return the dtype a buffer of `dtype` is viewed as."""
    return _STORED.get(dtype) or torch_dtype(dtype)


@cache
def torch_dtype(dtype: DType) -> torch.dtype:
    if dtype in PACKED:
        return torch.uint8
    found = getattr(torch, dtype.value)
    assert isinstance(found, torch.dtype)
    return found


def torch_name(dtype: DType) -> str:
    return str(torch_dtype(dtype)).removeprefix("torch.")


@cache
def stored_shape(shape: tuple[int, ...], dtype: DType) -> tuple[int, ...]:
    """Return the shape in stored elements: packed float4 halves the last dimension."""
    if dtype not in PACKED or not shape:
        return shape
    return (*shape[:-1], math.ceil(shape[-1] / 2))


@cache
def stored_bytes(shape: tuple[int, ...], dtype: DType) -> int:
    return math.prod(stored_shape(shape, dtype)) * stored_dtype(dtype).itemsize


@cache
def comparable_dtype(dtype: DType) -> torch.dtype:
    """Return the dtype in which values of `dtype` are compared."""
    if dtype is DType.FLOAT64:
        return torch.float64
    return torch.float32 if dtype.is_float else torch.int64


def comparable(values: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Return stored `values` as numbers to compare, unpacking float4."""
    if dtype in PACKED:
        table = torch.tensor(E2M1, device=values.device)
        low, high = table[(values & 15).long()], table[(values >> 4).long()]
        return torch.stack((low, high), dim=-1).flatten(-2)
    return values.to(comparable_dtype(dtype))


def stored(values: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Return numbers as `dtype` stores them: the nearest there is, packed float4 from an even count."""
    if dtype in PACKED:
        table = torch.tensor(E2M1, device=values.device)
        codes = (values.float().unsqueeze(-1) - table).abs().argmin(-1).to(torch.uint8)
        return codes[0::2] | codes[1::2] << 4
    target = stored_dtype(dtype)
    if target.is_floating_point:
        most = torch.finfo(target).max
        return (values.clamp(-most, most) if dtype.bits == 8 else values).to(target)
    whole = values.round() if values.is_floating_point() else values
    most = torch.iinfo(target).max
    return whole.clamp(torch.iinfo(target).min, most).to(target) if dtype.bits < 64 else whole.to(target)


def as_bits(values: torch.Tensor) -> torch.Tensor:
    """View a tensor as integers, so that equality means equal bytes (NaN and -0.0 included)."""
    return values.view(_BITS[values.element_size()])


def poison(dtype: DType, rng: random.Random) -> int:
    """Return a secret bit pattern for outputs: a NaN for floats, any pattern for the rest."""
    if dtype in _NAN:
        base, free_bits = _NAN[dtype]
        return base | rng.getrandbits(free_bits) if free_bits else base
    bits = 8 if dtype in PACKED else dtype.bits
    pattern = rng.getrandbits(bits) | 2  # never a valid bool
    return pattern - (1 << bits) if bits > 8 and pattern >> (bits - 1) else pattern & ((1 << bits) - 1)
