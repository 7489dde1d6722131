"""The machine code of compiled kernels as text, by nvdisasm in the sandbox; slow to read, never needed."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from swarm import sandbox
from swarm.errors import Refused
from swarm.languages import cubin, cuda_toolkit
from swarm.languages.protocol import Artifact, Kind

REMEDY = "type: make install EXTRAS=cuda; or install CUDA 13, which has it"
TIMEOUT_S = 60.0
TEXT_BYTES = 64 << 20
SECTION = re.compile(r"^\.text\.(\S+):\n", re.MULTILINE)
LINE = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/|^\.L_\w+:")
PADDING = re.compile(r"/\*[0-9a-f]+\*/\s+NOP *;$")


def disassemble(artifact: Artifact, cores: Sequence[int]) -> dict[tuple[int, str], str]:
    """Return the code of an artifact's kernels, and of functions that they call, by (variant, symbol)."""
    found = {}
    wanted = {(info.variant, info.symbol) for info in artifact.kernels}
    for variant, data in _cubins(artifact):
        disassembly = _nvdisasm(data, cores)
        entries = cubin.kernels(data)
        for symbol, text in _functions(disassembly):
            if symbol not in entries or (variant, symbol) in wanted:  # a function is called by a kernel
                found[variant, symbol] = text
    return found


def _cubins(artifact: Artifact) -> Iterator[tuple[int, bytes]]:
    if artifact.kind is Kind.PLAN:
        for number in sorted({info.variant for info in artifact.kernels}):
            yield number, (artifact.path / f"{number}.cubin").read_bytes()
    elif artifact.kind in (Kind.SHARED_OBJECT, Kind.TORCH_EXTENSION):
        for data in cubin.embedded(artifact.path.read_bytes()):
            yield 0, data


def _nvdisasm(data: bytes, cores: Sequence[int]) -> str:
    tool = cuda_toolkit.disassembler()
    if tool is None:
        raise Refused("no nvdisasm on this machine", remedy=REMEDY)
    with tempfile.TemporaryDirectory(prefix="swarm-sass-") as temp:
        folder = Path(temp)
        folder.chmod(0o755)
        source, out = folder / "kernel.cubin", folder / "out"
        source.write_bytes(data)
        out.mkdir()
        done = sandbox.run(
            ["/bin/sh", "-c", f'exec "$0" --print-code "$1" >{out}/text', str(tool), str(source)],
            timeout_s=TIMEOUT_S,
            limits=sandbox.Limits(file_bytes=TEXT_BYTES),
            cores=cores,
            readable=[folder, *cuda_toolkit.outside_the_system([tool.resolve().parent])],
            writable=[out],
        )
        text = out / "text"
        if done.exit is None or not done.exit.succeeded or text.is_symlink() or not text.is_file():
            how = "took too long" if done.exit is None else f"failed: {done.exit} {done.output.strip()[:200]}"
            raise Refused(f"nvdisasm {how}", remedy="look at the cubin with another version of CUDA")
        return text.read_text(errors="replace")


def _functions(text: str) -> Iterator[tuple[str, str]]:
    """Yield (symbol, instructions and labels) of a disassembly."""
    starts = list(SECTION.finditer(text))
    for number, start in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(text)
        lines = [line.rstrip() for line in text[start.end() : end].splitlines() if LINE.match(line)]
        while lines and (PADDING.search(lines[-1]) or lines[-1].startswith(".L_")):
            lines.pop()
        yield start[1], "\n".join(lines)
