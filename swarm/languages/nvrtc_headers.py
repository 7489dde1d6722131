"""The C and C++ standard headers that device code asks for: NVRTC has none, and CUDA's own cuda.h needs two.

They are the last place a compiler looks, and they hold only what makes sense on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping

INTEGERS = """\
#pragma once
typedef signed char int8_t;
typedef signed short int16_t;
typedef signed int int32_t;
typedef signed long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef int64_t intptr_t;
typedef uint64_t uintptr_t;
typedef int64_t intmax_t;
typedef uint64_t uintmax_t;
"""
"""The types that CCCL gives these names: a typedef may be repeated if it says the same."""
INTEGERS_IN_STD = """\
#pragma once
#include <stdint.h>
namespace std {
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;
using ::intptr_t; using ::uintptr_t; using ::intmax_t; using ::uintmax_t;
}
"""
BUILT_IN = "#pragma once\n"
"""What such a header declares, NVRTC knows without it."""


def _from_cccl(name: str) -> str:
    return f"#pragma once\n#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n"


HEADERS: Mapping[str, str] = {
    "stdint.h": INTEGERS,
    "cstdint": INTEGERS_IN_STD,
    **dict.fromkeys(
        ("stdlib.h", "cstdlib", "string.h", "cstring", "math.h", "cmath", "stdio.h", "cstdio"), BUILT_IN
    ),
    **dict.fromkeys(("stddef.h", "assert.h", "cassert"), BUILT_IN),
    "limits.h": "#pragma once\n#include <cuda/std/climits>\n",
    "float.h": "#pragma once\n#include <cuda/std/cfloat>\n",
    **{
        name: _from_cccl(name)
        for name in (
            "cstddef", "climits", "cfloat", "limits", "type_traits", "utility", "tuple", "array", "bit",
            "concepts", "functional", "numeric", "initializer_list",
        )
    },
}  # fmt: skip
"""By the name that follows #include."""
