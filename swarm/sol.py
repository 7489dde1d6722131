"""Speed-of-light arithmetic: T_SOL, the score S and the share of the limit. Measuring is the judge's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from swarm.errors import BadInput


@dataclass(frozen=True, slots=True)
class Peaks:
    """The fastest that a device can move bytes and compute, and where the figures come from."""

    device_model: str
    bandwidth_gbps: float
    """10^9 bytes per second, to and from memory."""
    gflops: dict[str, float]
    """Input dtype -> 10^9 floating-point operations per second on the fastest path for it."""
    source: str
    ceiling_gflops: Mapping[str, float] = field(default_factory=dict)
    """Where a kernel may honestly exceed `gflops`: what it cannot exceed whatever path it takes."""
    cache_bytes: int = 0
    """A kernel ends when its outputs are in a cache of this size; they need not have reached memory."""

    def __post_init__(self) -> None:
        for name, value in (
            ("bandwidth", self.bandwidth_gbps),
            *self.gflops.items(),
            *self.ceiling_gflops.items(),
        ):
            if not value > 0:
                raise ValueError(f"peak {name} of {self.device_model} is {value}")

    def flops_per_us(self, dtype: str) -> float:
        if dtype not in self.gflops:
            raise BadInput(
                f"no peak for {dtype}",
                where=f"peaks of {self.device_model}",
                remedy="add it to the table, or calibrate again",
            )
        return self.gflops[dtype] * 1e3

    def most_flops_per_us(self, dtype: str) -> float:
        """Return what no kernel exceeds, on any path and at the chip's highest clock."""
        return max(self.flops_per_us(dtype), self.ceiling_gflops.get(dtype, 0.0) * 1e3)

    @property
    def bytes_per_us(self) -> float:
        return self.bandwidth_gbps * 1e3


def t_sol_us(flops: float | None, bytes_moved: float, peaks: Peaks, dtype: str) -> float:
    """Return the physical floor; without a trustworthy FLOP count (None) only bytes bound it."""
    if bytes_moved < 0 or (flops is not None and flops < 0):
        raise ValueError(f"negative work: {flops} FLOPs, {bytes_moved} bytes")
    by_bytes = bytes_moved / peaks.bytes_per_us
    return max(by_bytes, flops / peaks.flops_per_us(dtype)) if flops else by_bytes


def floor_us(
    flops: float | None, bytes_moved: float, bytes_written: float, peaks: Peaks, dtype: str
) -> float:
    """Return the time that no honest kernel beats; at most T_SOL, from which scores are computed.

    Caches are cold before each call, so what is read comes from memory; of `bytes_written`, which are among
    `bytes_moved`, as much as the cache holds may still be in it when the kernel ends.
    """
    by_bytes = max(0.0, bytes_moved - min(bytes_written, peaks.cache_bytes)) / peaks.bytes_per_us
    return max(by_bytes, flops / peaks.most_flops_per_us(dtype)) if flops else by_bytes


def sol_score(t_k_us: float | None, t_b_us: float, t_sol: float) -> float | None:
    """Return S: 0.5 at the baseline, 1 at the limit, 0 for a failure (None); None if undefined.

    S is undefined where the baseline is at or below the limit. A time below the limit scores 1 as well: it is
    the noise of the peaks, or honest as `floor_us` says; what is below that is quarantined.
    """
    if t_b_us <= t_sol:
        return None
    if t_k_us is None:
        return 0.0
    return 1.0 / (1.0 + max(0.0, t_k_us - t_sol) / (t_b_us - t_sol))


def share_of_limit(t_k_us: float, t_sol: float) -> float:
    """Return how much of the possible speed is reached: 1 at the limit, more where it is honestly beaten."""
    return t_sol / t_k_us
