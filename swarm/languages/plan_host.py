"""Host code for a launch plan: the C++ that does what our launcher does, for where there is no launcher."""

from __future__ import annotations

from collections.abc import Iterator

from swarm.definition import Definition, DType
from swarm.languages import numbers
from swarm.languages.cpp_expressions import HELPERS, Value, number
from swarm.languages.plan import Argument, Launch, Memset, Plan
from swarm.languages.plan_names import PlanNames, Scope, accessor
from swarm.languages.resolve import squeezed
from swarm.languages.tensormaps import TYPES, TensorMap

RUNTIME = HELPERS.with_name("swarm_runtime.h")
"""What the C++ of a plan calls."""
INTEGER_TYPES = {
    "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
}  # fmt: skip


def host_code(plan: Plan, definition: Definition, where: str) -> str:
    """Return the source that defines `run`; `where` is put before names of tables in messages."""
    return _HostCode(plan, definition, where).text()


def scalar_type(dtype: DType) -> str:
    """Return how a Python scalar is passed."""
    if dtype.is_float:
        return "double"
    return "bool" if dtype is DType.BOOL else "int64_t"


class _HostCode(PlanNames):
    """Writes the one function of it."""

    def text(self) -> str:
        declared = [
            f"const void* {accessor(variant, place)};"
            for variant in range(len(self.plan.variants))
            for place, _ in enumerate(self.plan.kernels(variant))
        ]
        body = [*self._sizes(), *self._memory(), *self._fills(), *self._maps(), *self._steps()]
        if any("swarm_device" in line for line in body):
            body.insert(0, "const swarm::Device& swarm_device = swarm::device();")
        head = [
            "// Launches the kernels as their plan says: host code made from it.",
            f'#include "{RUNTIME.name}"',
            *self._includes(),
            "",
            *declared,
            "",
            f'extern "C" void run({", ".join(self._parameters())}) {{',
        ]
        return "\n".join([*head, *(f"  {line}" if line else "" for line in body), "}", ""])

    def _includes(self) -> Iterator[str]:
        """Include what 16-bit arguments need; it is slow to compile."""
        forms = {argument.form for launch in self.plan.launches for argument in launch.args}
        for form, header in (("bf16", "cuda_bf16.h"), ("f16", "cuda_fp16.h")):
            if form in forms:
                yield f"#include <{header}>"

    def _parameters(self) -> Iterator[str]:
        for name, spec in self.definition.inputs.items():
            if not spec.is_scalar:
                yield f"const void* {self.spelt.spell('input', name)}"
            else:
                yield f"{scalar_type(spec.dtype)} {self.spelt.spell('input', name)}"
        for name in self.definition.outputs:
            yield f"void* {self.spelt.spell('output', name)}"
        for name in self.definition.runtime_axes:
            yield f"int64_t {self.axis(name)}"
        yield "cudaStream_t swarm_stream"

    def _sizes(self) -> Iterator[str]:
        """Give every buffer that needs one its size in bytes."""
        scope = self.scope(None)
        wanted = {memset.buffer for memset in self.plan.memsets}
        for tensor in self.plan.tensors.values():
            if tensor.buffer in wanted:
                shape = [dim if dim.isdecimal() else self.known[dim].code for dim in tensor.shape]
                yield f"const int64_t {self.size_of(tensor.buffer)} = {_bytes(shape, tensor.dtype)};"
        for name, memory in self.plan.scratch.items():
            place = f"scratch.{name}.shape"
            shape = [self.at_least(0, text, scope, place) for text in memory.shape]
            yield f"const int64_t {self.size_of(f'scratch:{name}')} = {_bytes(shape, memory.dtype)};"
        for name, item in self.plan.maps.items():
            if item.count != "1" or item.in_memory:
                count = self.at_least(1, item.count, scope, f"tensormap.{name}.count")
                yield f"const int64_t {self.count_of(name)} = {count};"
            if item.in_memory:
                size = f"{self.count_of(name)} * sizeof(CUtensorMap)"
                yield f"const int64_t {self.size_of(f'map:{name}')} = {size};"

    def _memory(self) -> Iterator[str]:
        """Cut all scratch memory out of one block that is kept from call to call."""
        wanted = [f"scratch:{name}" for name in self.plan.scratch]
        wanted += [f"map:{name}" for name, item in self.plan.maps.items() if item.in_memory]
        if wanted:
            total = " + ".join(f"swarm::rounded({self.size_of(buffer)})" for buffer in wanted)
            yield f"char* swarm_memory = swarm::scratch({total});"
        for buffer in wanted:
            yield f"char* {self.buffers[buffer]} = swarm_memory;"
            yield f"swarm_memory += swarm::rounded({self.size_of(buffer)});"

    def _fills(self) -> Iterator[str]:
        for name, memory in self.plan.scratch.items():
            if memory.fill is not None:
                value, width = numbers.pattern(memory.fill, memory.dtype, f"scratch.{name}.fill")
                buffer = f"scratch:{name}"
                given = f"{self.buffers[buffer]}, {value}u, {width}, {self.size_of(buffer)}"
                yield f"swarm::set({given}, swarm_stream);"

    def _maps(self) -> Iterator[str]:
        scope = self.scope(None)
        for name, item in self.plan.maps.items():
            tests = [
                "true"
                if launch.when is None
                else self.value(launch.when, self.scope(n), f"launch[{n}].when").as_truth
                for n, launch in enumerate(self.plan.launches)
                if {Argument("map", name), Argument("pointer", f"map:{name}")} & set(launch.args)
            ]
            if not tests:
                continue
            spelt = self.map(name)
            encoded = f"swarm_host_{spelt}" if item.in_memory else spelt
            yield f"std::vector<CUtensorMap> {encoded};"
            yield f"if ({' || '.join(dict.fromkeys(tests))}) {{"
            yield from (f"  {line}" for line in self._encoding(name, item, encoded, scope))
            if item.in_memory:
                yield (
                    f"  swarm::check(cudaMemcpyAsync({spelt}, {encoded}.data(), "
                    f"{self.size_of(f'map:{name}')}, cudaMemcpyHostToDevice, swarm_stream));"
                )
            yield "}"

    def _encoding(self, name: str, item: TensorMap, encoded: str, scope: Scope) -> Iterator[str]:
        def all_of(texts: tuple[str, ...] | None, key: str) -> str:
            place = f"tensormap.{name}.{key}"
            return ", ".join(self.integer(text, scope, place) for text in texts or ())

        type_name, width = TYPES[item.dtype]
        swizzle = f"SWIZZLE_{item.swizzle}B" if item.swizzle else "SWIZZLE_NONE"
        interleave = f"INTERLEAVE_{item.interleave}B" if item.interleave else "INTERLEAVE_NONE"
        promotion = f"L2_PROMOTION_L2_{item.l2}B" if item.l2 else "L2_PROMOTION_NONE"
        fill = "FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA" if item.is_nan_filled else "FLOAT_OOB_FILL_NONE"
        yield "swarm::Map map;"
        yield f"map.type = CU_TENSOR_MAP_DATA_TYPE_{type_name};"
        yield f"map.width = {width};"
        yield f"map.dims = {{{all_of(item.dims, 'dims')}}};"
        if item.strides is not None:
            yield f"map.strides = {{{all_of(item.strides, 'strides')}}};"
        yield f"map.box = {{{all_of(item.box, 'box')}}};"
        if item.element_strides is not None:
            yield f"map.element_strides = {{{all_of(item.element_strides, 'element_strides')}}};"
        yield f"map.interleave = CU_TENSOR_MAP_{interleave};"
        yield f"map.swizzle = CU_TENSOR_MAP_{swizzle};"
        yield f"map.promotion = CU_TENSOR_MAP_{promotion};"
        yield f"map.fill = CU_TENSOR_MAP_{fill};"
        inner = scope
        place = "  "
        if item.count != "1" or item.in_memory:
            index = self.spelt.spell("index", item.index)
            inner = scope.having(item.index, Value(index, True))
            yield f"for (int64_t {index} = 0; {index} < {self.count_of(name)}; ++{index})"
        else:
            inner, place = scope.having(item.index, number(0)), ""
        offset = self.integer(item.offset, inner, f"tensormap.{name}.offset")
        yield f"{place}{encoded}.push_back(map.at({self.buffers[item.buffer]}, {offset}));"

    def _steps(self) -> Iterator[str]:
        if self.overlaps:
            yield "bool swarm_follows_kernel = false;"
        for number_ in range(len(self.plan.launches) + 1):
            for place, memset in enumerate(self.plan.memsets):
                if memset.before == number_:
                    yield from self._memset(memset, f"memset[{place}]")
            if number_ < len(self.plan.launches):
                yield from self._launch(number_, self.plan.launches[number_])

    def _memset(self, memset: Memset, where: str) -> Iterator[str]:
        scope = self.scope(None)
        size = self.size_of(memset.buffer)
        offset = self.integer(memset.offset, scope, f"{where}.offset")
        length = "-1" if memset.bytes is None else self.integer(memset.bytes, scope, f"{where}.bytes")
        call = (
            f"swarm::set_part({self.buffers[memset.buffer]}, {size}, {offset}, {length}, {memset.value}, "
            "swarm_stream)"
        )
        condition = "" if memset.when is None else self.value(memset.when, scope, f"{where}.when").as_truth
        yield f"if ({condition or 'true'}) {{  // {where}"
        yield f"  if ({call}) swarm_follows_kernel = false;" if self.overlaps else f"  {call};"
        yield "}"

    def _launch(self, place: int, launch: Launch) -> Iterator[str]:
        where = f"launch[{place}]"
        scope = self.scope(place)
        condition = "true"
        if launch.when is not None:
            condition = self.value(launch.when, scope, f"{where}.when").as_truth
        yield f"if ({condition}) {{  // {where}: {squeezed(launch.kernel)}"
        if launch.repeat is None:
            yield from (f"  {line}" for line in self._one_launch(launch, place, scope, where))
        else:
            index = self.spelt.spell("index", launch.index)
            count = self.at_least(0, launch.repeat, scope, f"{where}.repeat")
            inner = scope.having(launch.index, Value(index, True))
            yield f"  for (int64_t {index} = 0, swarm_end = {count}; {index} < swarm_end; ++{index}) {{"
            yield from (f"    {line}" for line in self._one_launch(launch, place, inner, where))
            yield "  }"
        yield "}"

    def _one_launch(self, launch: Launch, place: int, scope: Scope, where: str) -> Iterator[str]:
        for n, argument in enumerate(launch.args):
            yield from self._argument(argument, n, scope, f"{where}.args[{n}]")
        pointers = [self._pointer(argument, n) for n, argument in enumerate(launch.args)] or ["nullptr"]
        yield f"void* swarm_arguments[] = {{{', '.join(pointers)}}};"
        yield "swarm::Launch swarm_launch;"
        yield f"swarm_launch.grid = {self.dim(launch.grid, scope, f'{where}.grid')};"
        yield f"swarm_launch.block = {self.dim(launch.block, scope, f'{where}.block')};"
        if launch.smem != "0":
            yield f"swarm_launch.smem = {self.at_least(0, launch.smem, scope, f'{where}.smem')};"
        if launch.cluster is not None:
            yield f"swarm_launch.cluster = {self.dim(launch.cluster, scope, f'{where}.cluster')};"
        if launch.cooperative:
            yield "swarm_launch.cooperative = true;"
        if launch.pdl:
            yield "swarm_launch.overlaps = swarm_follows_kernel;"
        yield f"swarm_launch.go({self.kernel(place)}, swarm_arguments, swarm_stream);"
        if self.overlaps:
            yield "swarm_follows_kernel = true;"

    def _argument(self, argument: Argument, place: int, scope: Scope, where: str) -> Iterator[str]:
        name = f"swarm_a{place}"
        match argument.form:
            case "map":
                return
            case "pointer":
                yield f"const void* {name} = {self.buffers[argument.text]};"
            case "bool":
                yield f"bool {name} = {self.value(argument.text, scope, where).as_truth};"
            case "f64":
                yield f"double {name} = {self.value(argument.text, scope, where).as_double};"
            case "f32":
                yield f"float {name} = float({self.value(argument.text, scope, where).as_double});"
            case "f16":
                yield f"__half {name} = __double2half({self.value(argument.text, scope, where).as_double});"
            case "bf16":
                value = self.value(argument.text, scope, where).as_double
                yield f"__nv_bfloat16 {name} = __float2bfloat16(float({value}));"
            case kind:
                value = self.integer(argument.text, scope, where)
                yield f"{INTEGER_TYPES[kind]} {name} = swarm::narrow<{INTEGER_TYPES[kind]}>({value});"

    def _pointer(self, argument: Argument, place: int) -> str:
        if argument.form == "map":
            return f"{self.map(argument.text)}.data()"
        return f"&swarm_a{place}"


def _bytes(shape: list[str], dtype: str) -> str:
    bits = numbers.bits(dtype)
    elements = " * ".join([f"{bits}L", *shape])
    return f"({elements} + 7) / 8"
