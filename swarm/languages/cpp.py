"""C++17 with OpenMP for the CPU: one shared object with a C entry point, `run`.

The compiler sees a header, problem.h, made from the definition, and a shim through which one call site
serves every candidate. Which options and constructs are allowed is for `solution` to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from swarm.definition import Definition, DType, TensorSpec
from swarm.device import Device
from swarm.languages import toolchain
from swarm.languages.protocol import Artifact, CompileLimits, Failure, Kind
from swarm.problem import Problem
from swarm.solution import Manifest
from swarm.verdict import Status

FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-shared",
    "-fPIC",
    "-Wl,--no-undefined",  # a missing `run` is then the linker's error, with its name
    "-fdiagnostics-color=never",
)
ENTRY = "swarm_entry"
HEADER = "problem.h"
SHIM = "swarm_shim.cpp"

C_TYPES = {
    DType.FLOAT64: "double",
    DType.FLOAT32: "float",
    DType.FLOAT16: "_Float16",
    DType.BFLOAT16: "bf16",
    DType.FLOAT8_E4M3FN: "uint8_t",
    DType.FLOAT8_E5M2: "uint8_t",
    DType.FLOAT4_E2M1: "uint8_t",
    DType.FLOAT4_E2M1FN_X2: "uint8_t",
    DType.INT64: "int64_t",
    DType.INT32: "int32_t",
    DType.INT16: "int16_t",
    DType.INT8: "int8_t",
    DType.BOOL: "bool",
}

PREAMBLE = """\
// Made from the problem's definition; the same for every solution of it.
#pragma once
#include <cstdint>
#include <cstring>

// Two bytes; converts from and to float by itself, to nearest even.
struct bf16 {
  uint16_t bits;
  bf16() = default;
  bf16(float value) {
    uint32_t word;
    std::memcpy(&word, &value, 4);
    bits = (word & 0x7fffffffu) > 0x7f800000u ? uint16_t(word >> 16 | 0x40)
                                              : uint16_t((word + 0x7fffu + (word >> 16 & 1u)) >> 16);
  }
  operator float() const {
    const uint32_t word = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &word, 4);
    return value;
  }
};

"""


class Cpp:
    """The language `cpp`."""

    def compile(
        self,
        files: Mapping[str, bytes],
        manifest: Manifest,
        problem: Problem,
        device: Device,
        cache: Path,
        limits: CompileLimits,
    ) -> Artifact | Failure:
        sources = {name: files[name] for name in manifest.sources}
        taken = {HEADER, SHIM} & set(sources)
        if taken:
            return Failure(Status.INVALID_SOLUTION, f"{taken.pop()} is made by the judge; rename the source")
        sources[HEADER] = problem_header(problem.definition, len(device.cores)).encode()
        sources[SHIM] = shim(problem.definition).encode()
        macros = [f"-D{name}={value}" for name, value in manifest.params.items()]
        options = [*FLAGS, *manifest.compile.options, *macros]
        built = toolchain.build(
            sources,
            options,
            cache,
            timeout_s=limits.timeout_s,
            memory_bytes=limits.memory_bytes,
            cores=toolchain.cores_beside(device),
        )
        if isinstance(built, toolchain.Built):
            return Artifact(Kind.SHARED_OBJECT, built.path, ENTRY, log=built.log)
        return Failure(Status.COMPILE_ERROR, _reason(built, limits), built.log)


def problem_header(definition: Definition, cores: int) -> str:
    """Return problem.h: constant axes, the element types, and what `run` must look like."""
    constants = "".join(
        f"constexpr int64_t {name} = {value};\n" for name, value in definition.constants.items()
    )
    inputs = [f"{_input(spec)} /* {name} */" for name, spec in definition.inputs.items()]
    outputs = [f"{C_TYPES[spec.dtype]}* /* {name} */" for name, spec in definition.outputs.items()]
    axes = [f"int64_t /* {name} */" for name in definition.runtime_axes]
    parameters = ",\n                    ".join([*inputs, *outputs, *axes])
    return f'{PREAMBLE}#define SWARM_CORES {cores}\n{constants}\nextern "C" void run({parameters});\n'


def shim(definition: Definition) -> str:
    """Return the source that unpacks the judge's arrays into a call of `run`."""
    words: list[str] = []
    for spec in definition.inputs.values():
        place = f"arguments[{len(words)}]"
        if spec.is_scalar:
            words.append(scalar_value(spec, place))
        else:
            words.append(f"static_cast<const {C_TYPES[spec.dtype]}*>({place})")
    for spec in definition.outputs.values():
        words.append(f"static_cast<{C_TYPES[spec.dtype]}*>(arguments[{len(words)}])")
    words += [f"axes[{index}]" for index in range(len(definition.runtime_axes))]
    call = ",\n      ".join(words)
    return (
        f'#include "{HEADER}"\n'
        f'extern "C" __attribute__((visibility("default"))) void {ENTRY}(void* const* arguments, '
        f"const int64_t* axes) {{\n  (void)axes;\n  run({call});\n}}\n"
    )


def _input(spec: TensorSpec) -> str:
    return scalar_type(spec) if spec.is_scalar else f"const {C_TYPES[spec.dtype]}*"


def scalar_type(spec: TensorSpec) -> str:
    """Return what a Python scalar is to a host function."""
    if spec.dtype.is_float:
        return "double"
    return "bool" if spec.dtype is DType.BOOL else "int64_t"


def scalar_value(spec: TensorSpec, place: str) -> str:
    """Return the expression that reads a scalar through the judge's pointer at `place`."""
    if spec.dtype.is_float:
        return f"*static_cast<const double*>({place})"
    integer = f"*static_cast<const int64_t*>({place})"
    return f"{integer} != 0" if spec.dtype is DType.BOOL else integer


def _reason(built: toolchain.NotBuilt, limits: CompileLimits) -> str:
    if built.exit is None:
        return f"the compiler did not end within {limits.timeout_s:g} s"
    for line in built.log.splitlines():
        if "error:" in line.lower() or "undefined reference" in line or "multiple definition" in line:
            return line.strip()[:300]
    return f"the compiler failed: {built.exit}"
