"""What `swarm bench` says about a tree beside its times: registers, memory, occupancy, rates, SASS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from swarm.cli.context import print_table, stdout
from swarm.errors import Refused

if TYPE_CHECKING:
    from swarm.device import Device
    from swarm.judge.build import Frozen
    from swarm.judge.feedback import Achieved, KernelUse
    from swarm.languages.protocol import Artifact
    from swarm.layout import RunRoot
    from swarm.sol import Peaks
    from swarm.verdict import Verdict

KERNEL_COLUMNS = (
    "kernel", "built with", "registers", "spilled B", "stack B", "threads", "smem B", "blocks", "per SM",
    "occupancy",
)  # fmt: skip
RATE_COLUMNS = ("workload", "GB/s", "of peak", "TFLOP/s", "of FLOP limit")


def collect(
    root: RunRoot,
    rules: Frozen,
    files: Mapping[str, bytes],
    device: Device,
    verdict: Verdict | None = None,
    peaks: Peaks | None = None,
    *,
    sass: bool = False,
) -> dict[str, Any]:
    """Return what there is to say, for --json; empty lists for a tree that does not build.

    The tree was built to be measured, so this takes it from the cache.
    """
    from swarm.judge.build import build
    from swarm.judge.feedback import achieved, kernel_uses
    from swarm.languages.protocol import Failure

    built = build(files, rules, device, root.build_cache)
    if isinstance(built, Failure):
        return {"kernels": [], "achieved": [], **({"sass": []} if sass else {})}
    told: dict[str, Any] = {
        "kernels": [asdict(use) for use in kernel_uses(built.artifact, rules.problem, device)],
        "achieved": []
        if verdict is None or peaks is None
        else [asdict(one) for one in achieved(verdict, rules.problem, device, peaks)],
    }
    if sass:
        told["sass"] = _sass(built.artifact, device)
    return told


def show(told: Mapping[str, Any]) -> None:
    """Print what `collect` returned for a person."""
    from swarm.judge.feedback import Achieved, KernelUse
    from swarm.languages.protocol import KernelInfo

    uses = [KernelUse(**{**one, "info": KernelInfo(**one["info"])}) for one in told["kernels"]]
    if uses:
        print_table(KERNEL_COLUMNS, [_kernel(use) for use in uses], right=frozenset(KERNEL_COLUMNS[2:]))
    rates = [Achieved(**one) for one in told["achieved"]]
    if rates:
        print_table(RATE_COLUMNS, [_rate(one) for one in rates], right=frozenset(RATE_COLUMNS[1:]))
    for one in told.get("sass", ()):
        out = stdout()
        out.print(f"\n{one['kernel']}  (build {one['variant']})", style="bold", markup=False, soft_wrap=True)
        out.print(one["text"], markup=False, highlight=False, soft_wrap=True)


def _kernel(use: KernelUse) -> tuple[str, ...]:
    info = use.info
    spilled = info.spill_store_bytes + info.spill_load_bytes
    return (
        _short(info.name),
        use.build,
        str(info.registers),
        str(spilled) if spilled else "",
        str(info.stack_bytes) if info.stack_bytes else "",
        "" if use.threads is None else str(use.threads),
        str(use.smem_bytes),
        _range(use.blocks),
        "" if use.resident_blocks is None else str(use.resident_blocks),
        "" if use.occupancy is None else f"{100 * use.occupancy:.0f} %",
    )


def _rate(one: Achieved) -> tuple[str, ...]:
    return (
        one.uuid,
        f"{one.gbps:.0f}",
        f"{100 * one.bandwidth_share:.0f} %",
        "" if one.tflops is None else f"{one.tflops:.3g}",
        "" if one.flops_share is None else f"{100 * one.flops_share:.0f} %",
    )


def _sass(artifact: Artifact, device: Device) -> list[dict[str, Any]]:
    """Return the code of every kernel; Refused where nothing was compiled ahead."""
    from swarm.languages.sass import disassemble
    from swarm.languages.toolchain import cores_beside

    code = disassemble(artifact, cores_beside(device))
    names = {(info.variant, info.symbol): info.name for info in artifact.kernels}
    if not code:
        raise Refused(
            f"a {artifact.kind} has no machine code to show before it runs",
            remedy="--sass is for cuda and cuda_cpp",
        )
    return [{"kernel": names.get(key, key[1]), "variant": key[0], "text": text} for key, text in code.items()]


def _range(blocks: tuple[int, int] | None) -> str:
    if blocks is None:
        return ""
    least, most = blocks
    return str(least) if least == most else f"{least}-{most}"


def _short(name: str) -> str:
    """Leave out what a C++ name says of parameters: the table has no room for it."""
    return name.removeprefix("void ").partition("(")[0]
