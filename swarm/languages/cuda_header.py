"""problem.h for CUDA: constant axes, element types, what the arguments are, and the form of a host entry."""

from __future__ import annotations

from collections.abc import Mapping

from swarm.definition import Definition, DType, TensorSpec
from swarm.languages.cpp import scalar_type, scalar_value

HEADER = "problem.h"

TYPES = {
    DType.FLOAT64: "double",
    DType.FLOAT32: "float",
    DType.FLOAT16: "__half",
    DType.BFLOAT16: "__nv_bfloat16",
    DType.FLOAT8_E4M3FN: "__nv_fp8_e4m3",
    DType.FLOAT8_E5M2: "__nv_fp8_e5m2",
    DType.FLOAT4_E2M1: "uint8_t",
    DType.FLOAT4_E2M1FN_X2: "uint8_t",
    DType.INT64: "int64_t",
    DType.INT32: "int32_t",
    DType.INT16: "int16_t",
    DType.INT8: "int8_t",
    DType.BOOL: "bool",
}
"""Two float4 lie in one byte, the even one in its low half."""

HEADERS = {
    DType.FLOAT16: "cuda_fp16.h",
    DType.BFLOAT16: "cuda_bf16.h",
    DType.FLOAT8_E4M3FN: "cuda_fp8.h",
    DType.FLOAT8_E5M2: "cuda_fp8.h",
}
"""What declares an element type; only those that a problem uses are read, for the compiler's time."""

KEYWORDS = frozenset((
    "alignas", "alignof", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "concept",
    "const", "constexpr", "continue", "default", "delete", "do", "double", "else", "enum", "explicit",
    "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int", "long",
    "mutable", "namespace", "new", "noexcept", "nullptr", "operator", "private", "protected", "public",
    "register", "requires", "return", "short", "signed", "sizeof", "static", "struct", "switch",
    "template", "this", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned",
    "using", "virtual", "void", "volatile", "while",
))  # fmt: skip
"""Names of axes that C++ cannot have; the kernel has to write their sizes."""

ENTRY = "swarm_entry"
SHIM = "swarm_shim.cpp"
PARAMS = "swarm_params.h"


def device_header(definition: Definition) -> str:
    """Return problem.h for device code alone."""
    return f"{_preamble(definition)}{_arguments(definition)}"


def host_header(definition: Definition) -> str:
    """Return problem.h for host and device code: it declares the `run` that the sources define."""
    inputs = [f"{_input(spec)} /* {name} */" for name, spec in definition.inputs.items()]
    outputs = [f"{TYPES[spec.dtype]}* /* {name} */" for name, spec in definition.outputs.items()]
    axes = [f"int64_t /* {name} */" for name in definition.runtime_axes]
    parameters = ",\n                    ".join([*inputs, *outputs, *axes, "cudaStream_t"])
    return (
        f"{_preamble(definition, 'cuda_runtime.h')}{_arguments(definition)}"
        "\n// Pointers are to device memory. All work goes to this stream.\n"
        f'extern "C" void run({parameters});\n'
    )


def shim(definition: Definition) -> str:
    """Return the source that unpacks the runner's arrays into a call of `run`.

    A tensor's word is its device address, a scalar's points to a double or an int64_t on the host. It reads
    no header of CUDA, which would take longer to compile than all the rest of it.
    """
    kinds: list[str] = []
    words: list[str] = []
    for spec in (*definition.inputs.values(), *definition.outputs.values()):
        place = f"arguments[{len(words)}]"
        kinds.append(scalar_type(spec) if spec.is_scalar else "void*")
        words.append(scalar_value(spec, place) if spec.is_scalar else place)
    for index in range(len(definition.runtime_axes)):
        kinds.append("int64_t")
        words.append(f"axes[{index}]")
    call = ", ".join([*words, "stream"])
    visible = 'extern "C" __attribute__((visibility("default")))'
    return (
        "#include <cstdint>\n"
        f'extern "C" void run({", ".join([*kinds, "void*"])});\n'
        'extern "C" int cudaGetLastError();\nextern "C" const char* cudaGetErrorString(int);\n'
        f"{visible} void {ENTRY}(void* const* arguments, const int64_t* axes, void* stream) {{\n"
        f"  (void)axes;\n  run({call});\n}}\n"
        "// Of the last call that failed, 0 if none did: the runtime is this object's own.\n"
        f"{visible} int swarm_error() {{ return cudaGetLastError(); }}\n"
        f"{visible} const char* swarm_error_text(int error) {{ return cudaGetErrorString(error); }}\n"
    )


def params_header(params: Mapping[str, int | float | str]) -> str:
    """Return [params] for nvcc, read before every source: as macros; whole numbers are constants too.

    In `#pragma unroll N` nvcc expands no macro, but takes a constant.
    """
    return "#pragma once\n" + "".join(
        (f"constexpr long long {name} = {value};\n" if isinstance(value, int) else "")
        + f"#define {name} {value}\n"
        for name, value in params.items()
    )


def _preamble(definition: Definition, *more: str) -> str:
    used = {spec.dtype for spec in (*definition.inputs.values(), *definition.outputs.values())}
    headers = ["cstdint", *more, *sorted({HEADERS[dtype] for dtype in used if dtype in HEADERS})]
    constants = "".join(
        f"constexpr int64_t {name} = {value};\n"
        for name, value in definition.constants.items()
        if name not in KEYWORDS
    )
    includes = "".join(f"#include <{name}>\n" for name in headers)
    return (
        "// Made from the problem's definition; the same for every solution of it.\n"
        f"#pragma once\n{includes}\n"
        "// Sizes. Where CUDA has the same name, as with `half`, write problem::half.\n"
        f"namespace problem {{\n{constants}}}\nusing namespace problem;\n\n"
    )


def _arguments(definition: Definition) -> str:
    """Say as comments what there is; a plan passes what its kernels want."""
    lines = [f"//   {name}: const {_described(spec)}" for name, spec in definition.inputs.items()]
    lines += [f"//   {name}: {_described(spec)}" for name, spec in definition.outputs.items()]
    axes = ", ".join(definition.runtime_axes) or "none"
    return "// Inputs and outputs:\n" + "\n".join(lines) + f"\n// Sizes that a workload sets: {axes}\n"


def _described(spec: TensorSpec) -> str:
    if spec.shape is None:
        return f"{TYPES[spec.dtype]}, a number"
    shape = ", ".join(spec.shape)
    packed = ", two elements in a byte" if spec.dtype.is_packed else ""
    return f"{TYPES[spec.dtype]}* [{shape}]{packed}"


def _input(spec: TensorSpec) -> str:
    return scalar_type(spec) if spec.is_scalar else f"const {TYPES[spec.dtype]}*"
