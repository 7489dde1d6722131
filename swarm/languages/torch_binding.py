"""A function for torch around the C function `run` of a solution: what SOL-ExecBench calls.

It learns the sizes from the tensors, and passes addresses, numbers and torch's current stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from swarm.definition import Definition, ExprAxis
from swarm.errors import BadInput
from swarm.languages.cpp_expressions import HELPERS, Value, number, translate
from swarm.languages.cpp_names import CppNames
from swarm.languages.plan_host import scalar_type

BINDING_FILE = "swarm_binding.cpp"
FUNCTION = "run"
HEAD = """\
// Lets torch call `run`.
#include "{helpers}"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/utils/pybind.h>

extern "C" void run({types});

namespace {{

void* swarm_memory(const at::Tensor& tensor, const char* name) {{
  TORCH_CHECK(tensor.is_cuda() && tensor.is_contiguous(), name, " must be a contiguous CUDA tensor");
  return tensor.data_ptr();
}}
"""


def torch_binding(definition: Definition, where: str) -> Mapping[str, str]:
    """Return the files of the binding; BadInput if the tensors do not tell the sizes."""
    return {BINDING_FILE: _Binding(definition, where).text(), HELPERS.name: HELPERS.read_text()}


class _Binding:
    def __init__(self, definition: Definition, where: str) -> None:
        self.definition = definition
        self.where = where
        self.spelt = CppNames()

    def text(self) -> str:
        parameters = [
            *self._inputs(),
            *(f"const at::Tensor& {self._tensor(n)}" for n in self.definition.outputs),
        ]
        lines = [
            HEAD.format(helpers=HELPERS.name, types=", ".join(self._types())),
            f"void swarm_run({', '.join(parameters)}) {{",
            f"  const c10::cuda::CUDAGuard swarm_guard({self._first()}.device());",
            *self._axes(),
            *self._contiguous(),
            f"  run({', '.join(self._arguments())});",
            "}",
            "",
            "}  // namespace",
            "",
            "PYBIND11_MODULE(TORCH_EXTENSION_NAME, swarm_module) {",
            f'  swarm_module.def("{FUNCTION}", &swarm_run);',
            "}",
            "",
        ]
        return "\n".join(lines)

    def _types(self) -> Iterator[str]:
        for spec in self.definition.inputs.values():
            yield scalar_type(spec.dtype) if spec.is_scalar else "const void*"
        yield from ("void*" for _ in self.definition.outputs)
        yield from ("int64_t" for _ in self.definition.runtime_axes)
        yield "cudaStream_t"

    def _inputs(self) -> Iterator[str]:
        for name, spec in self.definition.inputs.items():
            kind = scalar_type(spec.dtype) if spec.is_scalar else "const at::Tensor&"
            yield f"{kind} {self._tensor(name)}"

    def _first(self) -> str:
        """Return a tensor that says which device is meant: an output is always there."""
        return self._tensor(next(iter(self.definition.outputs)))

    def _axes(self) -> Iterator[str]:
        """Give each runtime axis its size: from a shape, or else from its expression."""
        known = {name: number(value) for name, value in self.definition.constants.items()}
        for name in self.definition.runtime_axes:
            code = self._from_shape(name)
            axis = self.definition.axes[name]
            if code is None and isinstance(axis, ExprAxis):
                code = translate(axis.expression, known, {}, f"axis {name}").as_integer
            if code is None:
                raise BadInput(
                    f"axis {name!r} is no dimension of any tensor, so a function of tensors cannot know it",
                    where=self.where,
                    remedy="export a solution in a Python language, which is not told axes either",
                )
            spelt = self.spelt.spell("axis", name)
            known[name] = Value(spelt, True)
            yield f"  const int64_t {spelt} = {code};"

    def _from_shape(self, axis: str) -> str | None:
        for specs in (self.definition.inputs, self.definition.outputs):
            for name, spec in specs.items():
                for place, dim in enumerate(spec.shape or ()):
                    is_packed = spec.dtype.is_packed and place == len(spec.shape or ()) - 1
                    if dim == axis and not is_packed:
                        return f"{self._tensor(name)}.size({place})"
        for specs in (self.definition.inputs, self.definition.outputs):
            for name, spec in specs.items():
                if spec.shape and spec.shape[-1] == axis:
                    return f"2 * {self._tensor(name)}.size({len(spec.shape) - 1})"
        return None

    def _contiguous(self) -> Iterator[str]:
        for name, spec in self.definition.inputs.items():
            if not spec.is_scalar:
                yield f"  const at::Tensor {self._dense(name)} = {self._tensor(name)}.contiguous();"

    def _arguments(self) -> Iterator[str]:
        for name, spec in self.definition.inputs.items():
            yield self._tensor(name) if spec.is_scalar else f'swarm_memory({self._dense(name)}, "{name}")'
        for name in self.definition.outputs:
            yield f'swarm_memory({self._tensor(name)}, "{name}")'
        for name in self.definition.runtime_axes:
            yield self.spelt.spell("axis", name)
        yield "c10::cuda::getCurrentCUDAStream().stream()"

    def _tensor(self, name: str) -> str:
        return self.spelt.spell("tensor", name)

    def _dense(self, name: str) -> str:
        return self.spelt.spell("dense", name, "dense_")
