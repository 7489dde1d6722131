"""What we read off a cubin is what the driver says once it has loaded it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.judge.cuda.driver import Context
from swarm.languages import dry_run
from swarm.languages.cuda_toolkit import arch_for
from tests.languages.test_cubin import compiled

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    held = Context(0)
    yield held
    held.close()


def test_the_driver_agrees_on_every_figure(context: Context, tmp_path: Path) -> None:
    made = compiled(arch_for(*divmod(context.facts.arch, 10)), tmp_path)
    module = context.load(made.cubin)
    for info in made.kernels:
        function = module.function(info.symbol)
        assert function.attribute("NUM_REGS") == info.registers
        assert function.attribute("SHARED_SIZE_BYTES") == info.static_smem_bytes
        assert function.attribute("LOCAL_SIZE_BYTES") == info.stack_bytes
        if info.max_threads:
            assert function.attribute("MAX_THREADS_PER_BLOCK") == info.max_threads
        assert tuple(function.parameters()) == info.parameters


@pytest.mark.parametrize(("threads", "smem"), [(32, 0), (96, 0), (128, 20_000), (256, 0), (256, 90_000)])
def test_the_occupancy_that_is_told_is_the_driver_s(
    context: Context, tmp_path: Path, threads: int, smem: int
) -> None:
    made = compiled(arch_for(*divmod(context.facts.arch, 10)), tmp_path)
    module = context.load(made.cubin)
    known = context.facts
    facts = dry_run.StaticFacts(known.num_sms, known.smem_per_block_max, known.l2_bytes, known.arch)
    for info in made.kernels:
        if info.max_threads and threads > info.max_threads:
            continue
        function = module.function(info.symbol)
        function.set_attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES", smem)
        found = function.max_active_blocks(threads, smem)
        assert abs(found - dry_run.most_blocks(info, threads, smem, facts)) <= 1, info
