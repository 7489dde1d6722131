"""SOL-ExecBench's way to time a kernel, written again from its description, to hold the judge's against.

    python -m benchmarks.gpu_sol SOLUTION CACHE BATCH_SIZE...

runs tests/gpu/solutions/SOLUTION (a cuda, triton or pytorch tree of the RMSNorm) and prints JSON: us by batch
size. Per call: inputs and outputs move on by 256 bytes in a pool, an int8 buffer of twice the L2 is zeroed,
then the call; its time is from the first start to the last end of the GPU activities launched between
two CPU timestamps around it, joined by correlation id. The median of 50 calls after 10.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from swarm.cli.devices import chosen_devices
from swarm.device import Device
from swarm.judge.build import Built, build
from swarm.solution import Language, load_manifest
from tests.gpu import trees

WARM_UPS, ITERATIONS, SHIFT = 10, 50, 256
HIDDEN = 4096
BUFFER_BYTES = 8 << 20
Tensors = Sequence[torch.Tensor]
Run = Callable[[Tensors, Tensors], None]


@dataclass(frozen=True, slots=True)
class Record:
    """One launch on the CPU, or what it became on the GPU."""

    is_launch: bool
    start_ns: int
    end_ns: int
    correlation: int


class Recorder:
    """GPU activities and the launches they came from."""

    def __init__(self) -> None:
        self.cupti: Any = importlib.import_module("cupti.cupti")
        kinds = self.cupti.ActivityKind
        self.launches = {int(kinds.RUNTIME), int(kinds.DRIVER)}
        self.records: list[Record] = []
        self.cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self._completed)
        for kind in (kinds.RUNTIME, kinds.DRIVER, kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET):
            self.cupti.activity_enable(kind)

    def spans_us(self, windows: Sequence[tuple[int, int]]) -> list[float]:
        """Return, for each pair of CPU timestamps, the span of what was launched between them."""
        self.cupti.activity_flush_all(1)
        launches = [record for record in self.records if record.is_launch]
        work: dict[int, list[Record]] = {}
        for record in self.records:
            if not record.is_launch:
                work.setdefault(record.correlation, []).append(record)
        self.records.clear()
        found = []
        for begin, end in windows:
            ids = {launch.correlation for launch in launches if begin <= launch.start_ns <= end}
            inside = [record for one in ids for record in work.get(one, ())]
            if not inside:
                raise RuntimeError("a call launched nothing")
            span_ns = max(r.end_ns for r in inside) - min(r.start_ns for r in inside)
            found.append(span_ns / 1e3)
        return found

    def _completed(self, activities: list[Any]) -> None:
        """Copy what is needed: the buffer is CUPTI's."""
        for item in activities:
            is_launch = int(item.kind) in self.launches
            self.records.append(Record(is_launch, item.start, item.end, item.correlation_id))


class Pool:
    """Copies of tensors that start 256 bytes further with every call."""

    def __init__(self, tensors: Tensors, calls: int) -> None:
        self.tensors = tensors
        self.memory = [
            torch.empty(tensor.nbytes + SHIFT * calls, dtype=torch.uint8, device="cuda") for tensor in tensors
        ]

    def copies(self, call: int, zeroed: bool) -> list[torch.Tensor]:
        found = []
        for tensor, memory in zip(self.tensors, self.memory, strict=True):
            part = memory[SHIFT * call : SHIFT * call + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            if zeroed:
                part.zero_()
            else:
                part.copy_(tensor)
            found.append(part)
        return found


def time_us(run: Run, inputs: Tensors, outputs: Tensors, recorder: Recorder) -> float:
    calls = WARM_UPS + ITERATIONS
    pool_in, pool_out = Pool(inputs, calls), Pool(outputs, calls)
    flush = torch.empty(
        2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.int8, device="cuda"
    )
    windows = []
    for call in range(calls):
        given, taken = pool_in.copies(call, zeroed=False), pool_out.copies(call, zeroed=True)
        flush.zero_()
        begin = recorder.cupti.get_timestamp()
        run(given, taken)
        end = recorder.cupti.get_timestamp()
        torch.cuda.synchronize()
        windows.append((begin, end))
    return statistics.median(recorder.spans_us(windows)[WARM_UPS:])


def runner_of(name: str, device: Device, cache: Path, stream: Any) -> Run:
    """Return a function that calls a solution, built as the judge builds it."""
    built = build(trees.solution(name), trees.frozen(trees.problem("rmsnorm")), device, cache)
    if not isinstance(built, Built):
        raise RuntimeError(f"{name}: {built.reason}")
    folder = built.artifact.path
    if load_manifest(trees.solution(name)).language is Language.CUDA:
        return _plan(folder, stream)
    file, _, function = built.artifact.entry.partition("::")
    spec = importlib.util.spec_from_file_location("solution", folder / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))
    spec.loader.exec_module(module)
    entry = getattr(module, function)
    return lambda inputs, outputs: entry(*inputs, *outputs)


def _plan(folder: Path, stream: Any) -> Run:
    from swarm.judge.cuda.driver import Context
    from swarm.judge.cuda.launcher import Launcher
    from swarm.languages.plan import Plan

    cubins = {int(path.stem): path.read_bytes() for path in folder.glob("*.cubin")}
    plan = Plan.from_json(json.loads((folder / "plan.json").read_bytes()))
    kernels = json.loads((folder / "kernels.json").read_bytes())
    launcher = Launcher(Context(0), stream, plan, cubins, kernels)

    def run(inputs: Tensors, outputs: Tensors) -> None:
        axes = {"batch_size": inputs[0].shape[0], "hidden_size": HIDDEN}
        addresses = {
            "input:hidden_states": inputs[0].data_ptr(),
            "input:weight": inputs[1].data_ptr(),
            "output:output": outputs[0].data_ptr(),
        }
        launcher.enqueue(launcher.prepare(launcher.resolve(axes, {}), addresses))

    return run


def main() -> int:
    from swarm.judge.cuda.driver import Stream

    name, cache, *batches = sys.argv[1:]
    torch.cuda.init()
    recorder = Recorder()
    torch.zeros(1, device="cuda")
    stream = Stream()
    with torch.cuda.stream(torch.cuda.ExternalStream(int(stream.handle))):
        run = runner_of(name, chosen_devices("cuda")[0], Path(cache), stream)
        found = {}
        for batch in map(int, batches):
            x = torch.randn(batch, HIDDEN, dtype=torch.bfloat16, device="cuda")
            weight = torch.randn(HIDDEN, dtype=torch.bfloat16, device="cuda")
            y = torch.empty_like(x)
            run([x, weight], [y])
            wide = x.float()
            wide *= torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5) * weight.float()
            torch.testing.assert_close(y.float(), wide, atol=0.02, rtol=0.02)
            found[batch] = time_us(run, [x, weight], [y], recorder)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
