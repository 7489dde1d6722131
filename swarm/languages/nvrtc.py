"""Compile CUDA C++ to cubins with NVRTC in a sandboxed child; what was compiled before comes from the cache.

A cubin is kept by its text, options, kernels, compiler and headers. What a solution is, is for `cuda`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swarm import sandbox
from swarm.contents import files_hash
from swarm.durable import create_only
from swarm.errors import BadInput, Refused
from swarm.languages import cubin as cubins
from swarm.languages import cuda_toolkit, toolchain
from swarm.languages.nvrtc_headers import HEADERS
from swarm.languages.protocol import CompileLimits, KernelInfo
from swarm.languages.ptxas import spills

MAIN = Path(__file__).with_name("nvrtc_main.py")
FILE_BYTES = 256 << 20
CUBIN_BYTES, TOLD_BYTES = 64 << 20, 1 << 20
"""The most that is believed: a compiler may have been taken over."""
ALWAYS = ("-default-device", "--ptxas-options=-v")
"""Unmarked functions and constants are the device's, for there is no host; and say what is spilled."""
STANDARD = "-std=c++17"
FORMAT = 2
"""Of what is kept; a change makes older entries unknown."""
NAME_ERROR = re.compile(r'__nv_name_map\(\d+\): error: (.*)(?:\n.*)*?Input name expression was: "(.*)"')
SOURCE_ERROR = re.compile(r"^(.*?)\((\d+)\): (?:catastrophic |fatal )?error: (.*)$", re.MULTILINE)
REPORT_CHARS = 4000
"""Of a log, from the first error on: what a text makes a compiler print must not keep us searching."""
PTXAS_ERROR = re.compile(r"^(ptxas .*?(?:error|fatal) *:.*|nvrtc: error.*|error: .*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Variant:
    """One cubin to make: macros and options beyond the architecture's, and the kernels it must hold."""

    options: tuple[str, ...]
    kernels: tuple[str, ...]
    """Names of extern "C" functions, or any C++ expressions that name a kernel: `rmsnorm<8>`."""


@dataclass(frozen=True, slots=True)
class Compiled:
    cubin: bytes
    kernels: tuple[KernelInfo, ...]
    """In the order of the variant's kernels; `variant` is its number."""
    log: str


@dataclass(frozen=True, slots=True)
class NotCompiled:
    reason: str
    """One sentence."""
    log: str
    variant: int = 0


def compile_variants(
    files: Mapping[str, bytes],
    units: Sequence[str],
    variants: Sequence[Variant],
    arch: str,
    cache: Path,
    limits: CompileLimits,
    cores: Sequence[int],
) -> list[Compiled] | NotCompiled:
    """Return a cubin per variant of the translation unit that `units` (names of files) make in this order."""
    compiler = cuda_toolkit.nvrtc()
    folder = cache / "cubins"
    wanted = [replace(one, options=_options(one, arch, compiler)) for one in variants]
    keys = [_key(files, units, one, compiler) for one in wanted]
    missing = [number for number, key in enumerate(keys) if not _is_kept(folder, key)]
    if missing:
        todo = [wanted[number] for number in missing]
        failed = _compile(files, units, todo, [keys[n] for n in missing], folder, compiler, limits, cores)
        if failed is not None:
            return replace(failed, variant=missing[failed.variant])
    return [_kept(folder, key, number) for number, key in enumerate(keys)]


def _options(variant: Variant, arch: str, compiler: cuda_toolkit.Nvrtc) -> tuple[str, ...]:
    standard = [] if any(option.startswith(("-std=", "--std=")) for option in variant.options) else [STANDARD]
    includes = [f"-I{path}" for path in (".", *compiler.headers.folders, "../std")]
    return (f"--gpu-architecture={arch}", *ALWAYS, *standard, *variant.options, *includes)


def _compile(
    files: Mapping[str, bytes],
    units: Sequence[str],
    variants: Sequence[Variant],
    keys: Sequence[str],
    kept: Path,
    compiler: cuda_toolkit.Nvrtc,
    limits: CompileLimits,
    cores: Sequence[int],
) -> NotCompiled | None:
    """Compile all variants in one child and keep what it made."""
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="swarm-nvrtc-") as temp:
        folder = Path(temp)
        folder.chmod(0o755)
        sources, out, spec = folder / "sources", folder / "out", folder / "spec.json"
        out.mkdir()
        _lay_out(files, sources)
        _lay_out({name: text.encode() for name, text in HEADERS.items()}, folder / "std")
        told = {
            "library": str(compiler.library),
            "unit": "".join(f'#include "{unit}"\n' for unit in units),
            "variants": [{"options": one.options, "names": one.kernels} for one in variants],
            "out": str(out),
        }
        spec.write_text(json.dumps(told))
        done = sandbox.run(
            [os.path.realpath(sys.executable), "-I", "-S", str(MAIN), str(spec)],
            timeout_s=limits.timeout_s,
            limits=sandbox.Limits(
                memory_bytes=limits.memory_bytes,
                file_bytes=FILE_BYTES,
                scratch_bytes=FILE_BYTES,
                open_files=256,
            ),
            cores=cores,
            env={"LD_LIBRARY_PATH": str(compiler.library.parent)},  # its wheel has no rpath to its builtins
            cwd=sources,
            readable=[
                MAIN,
                folder,
                *cuda_toolkit.outside_the_system([compiler.library.parent, *compiler.headers.folders]),
            ],
            writable=[out],
            nice=toolchain.NICE,
        )
        for number, (variant, key) in enumerate(zip(variants, keys, strict=True)):
            made = _made(out, number, variant, str(sources))
            if isinstance(made, NotCompiled):
                if done.exit is None:
                    made = NotCompiled(f"the compiler did not end within {limits.timeout_s:g} s", made.log)
                elif not made.reason:
                    _check_space(folder)
                    made = NotCompiled(_died(done, limits), made.log or done.output)
                return replace(made, variant=number)
            _keep(kept, key, made)
    return None


def _made(out: Path, number: int, variant: Variant, sources: str) -> Compiled | NotCompiled:
    """Read what the child left of one variant; without a reason where it left nothing."""
    log = _read(out / f"{number}.log", TOLD_BYTES).decode("utf-8", "replace").replace(f"{sources}/", "")
    try:
        said = json.loads(_read(out / f"{number}.json", TOLD_BYTES) or b"null")
        if said is None:
            return NotCompiled("", log)
        if "error" in said:
            return NotCompiled(_reason(log, variant, str(said["error"])), log)
        data = _read(out / f"{number}.cubin", CUBIN_BYTES)
        symbols = {name: str(said["symbols"][name]) for name in variant.kernels}
        entries = cubins.kernels(data)
    except (ValueError, KeyError, TypeError, BadInput) as error:  # its text has taken the child over
        return NotCompiled(f"the compiler made nothing that can be read: {error}", log)
    infos = []
    told = spills(log)
    for name, symbol in symbols.items():
        entry = entries.get(symbol)
        if entry is None:
            return NotCompiled(f"{name!r} is no kernel: the cubin has no entry {symbol}", log)
        stores, loads = told.get(symbol, (0, 0))
        infos.append(
            KernelInfo(
                name, symbol, 0, entry.registers, entry.static_smem_bytes, entry.stack_bytes,
                stores, loads, entry.parameters, entry.max_threads, entry.cluster,
            )
        )  # fmt: skip
    return Compiled(data, tuple(infos), log)


def _reason(log: str, variant: Variant, error: str) -> str:
    """Say in one sentence what was wrong, with file and line or the name of the kernel."""
    match = SOURCE_ERROR.search(log)
    if match and (named := NAME_ERROR.match(log[match.start() :][:REPORT_CHARS])):
        said = "".join(named[2].split())
        name = next((kernel for kernel in variant.kernels if "".join(kernel.split()) == said), said)
        return f"kernel {name!r}: {named[1].strip()}"[:300]
    if match:
        return f"{match[1].removeprefix('./')}:{match[2]}: {match[3].strip()}"[:300]
    if match := PTXAS_ERROR.search(log):
        return match[1].strip()[:300]
    return f"the compiler failed: {error}"


def _died(done: sandbox.Completed, limits: CompileLimits) -> str:
    gib = limits.memory_bytes / sandbox.GIB
    if "MemoryError" in done.output or (done.exit is not None and done.exit.signal == "SIGABRT"):
        return f"the compiler needs more than {gib:.3g} GiB of memory"
    return f"the compiler died: {done.exit}, with {gib:.3g} GiB of memory to use"


def _keep(folder: Path, key: str, made: Compiled) -> None:
    """Write a result; the description comes last, so that it is only there if all of it is."""
    told = {"log": made.log, "kernels": [info_to_json(info) for info in made.kernels]}
    create_only(folder / f"{key}.cubin", made.cubin)
    create_only(folder / f"{key}.json", json.dumps(told).encode())


def _is_kept(folder: Path, key: str) -> bool:
    return all((folder / f"{key}.{suffix}").exists() for suffix in ("json", "cubin"))


def _kept(folder: Path, key: str, number: int) -> Compiled:
    told = json.loads((folder / f"{key}.json").read_bytes())
    infos = tuple(map(info_from_json, told["kernels"]))
    return numbered(Compiled((folder / f"{key}.cubin").read_bytes(), infos, told["log"]), number)


def numbered(made: Compiled, variant: int) -> Compiled:
    """Return a result as that of another variant."""
    return replace(made, kernels=tuple(replace(info, variant=variant) for info in made.kernels))


def info_to_json(info: KernelInfo) -> dict[str, Any]:
    return {name: getattr(info, name) for name in KernelInfo.__dataclass_fields__}


def info_from_json(data: Mapping[str, Any]) -> KernelInfo:
    parameters = tuple((offset, size) for offset, size in data["parameters"])
    cluster = data.get("cluster") and tuple(data["cluster"])
    return KernelInfo(**{**data, "parameters": parameters, "cluster": cluster})


def _key(
    files: Mapping[str, bytes], units: Sequence[str], variant: Variant, compiler: cuda_toolkit.Nvrtc
) -> str:
    digest = hashlib.sha256(f"{FORMAT}\0{files_hash(files)}\0".encode())
    headers = files_hash({name: text.encode() for name, text in HEADERS.items()})
    for part in (headers, compiler.identity, *units, "", *variant.options, "", *variant.kernels):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:40]


def _lay_out(files: Mapping[str, bytes], folder: Path) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _read(path: Path, most: int) -> bytes:
    """Return a plain file's bytes, b"" if it is something else or too large."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > most:
        return b""
    return path.read_bytes()


def _check_space(folder: Path) -> None:
    if shutil.disk_usage(folder).free < toolchain.LEAST_FREE_BYTES:
        raise Refused("no space is left for the compiler", where=str(folder.parent), remedy="free some space")
