"""From a manifest to its launch plan: every name in it means something, before anything is compiled."""

from __future__ import annotations

from collections.abc import Collection

from swarm import expressions
from swarm.definition import Definition
from swarm.errors import BadInput
from swarm.languages import plan as plans
from swarm.languages import tensormaps
from swarm.languages.plan import Argument, Plan
from swarm.languages.resolve import squeezed
from swarm.launch import FACTS, OCCUPANCY, Launch, Memset, Param, TensorMap, argument
from swarm.schema import suggest
from swarm.solution import FOLDER, MANIFEST, Manifest

WHERE = f"{FOLDER}{MANIFEST}: "
MAX_VARIANTS = 16


def make_plan(manifest: Manifest, definition: Definition) -> Plan:
    """Return the plan of a `cuda` manifest; BadInput if it names what is not there."""
    return _Planning(manifest, definition).plan()


class _Planning:
    def __init__(self, manifest: Manifest, definition: Definition) -> None:
        self.manifest = manifest
        self.tensors = {
            name: plans.Tensor(f"{kind}:{name}", spec.dtype.value, spec.shape)
            for kind, specs in (("input", definition.inputs), ("output", definition.outputs))
            for name, spec in specs.items()
            if spec.shape is not None
        }
        self.constants = definition.constants
        scalars = [name for name, spec in definition.inputs.items() if spec.is_scalar]
        self.sizes = frozenset([*definition.axes, *scalars])
        self.variants = _variants(manifest)

    def plan(self) -> Plan:
        self._check_names()
        manifest = self.manifest
        for name, memory in manifest.scratch.items():
            self._check(f"scratch.{name}.shape", memory.shape)
        return Plan(
            tensors=self.tensors,
            constants=self.constants,
            variants=self.variants,
            launches=tuple(self._launch(n, item) for n, item in enumerate(manifest.launch)),
            memsets=tuple(self._memset(f"memset[{n}]", item) for n, item in enumerate(manifest.memset)),
            scratch={
                name: plans.Scratch(memory.dtype, memory.shape, memory.fill)
                for name, memory in manifest.scratch.items()
            },
            maps={name: self._map(f"tensormap.{name}", item) for name, item in manifest.tensormap.items()},
        )

    def _check_names(self) -> None:
        """Refuse a name with two meanings."""
        for name in self.manifest.params:
            if name in self.sizes or name in self.tensors:
                raise _wrong(f"params.{name}", f"{name!r} is part of the problem too", "choose another name")
        for table in ("scratch", "tensormap"):
            for name in getattr(self.manifest, table):
                if name in self.tensors or name in self.sizes:
                    raise _wrong(
                        f"{table}.{name}", f"{name!r} is part of the problem too", "choose another name"
                    )

    def _launch(self, number: int, launch: Launch) -> plans.Launch:
        where = f"launch[{number}]"
        params = {**self.manifest.params, **launch.params}
        index = [] if launch.repeat is None else [launch.index]
        if index and launch.index in self.sizes:
            raise _wrong(
                f"{where}.index", f"{launch.index!r} is part of the problem too", "choose another name"
            )
        for key, text in (("when", launch.when), ("repeat", launch.repeat)):
            if text is not None:
                self._check(f"{where}.{key}", [text], kernel=True)
        self._check(f"{where}.grid", launch.grid, names=index, kernel=True)
        for key, texts in (("block", launch.block), ("smem", [launch.smem]), ("cluster", launch.cluster)):
            self._check(f"{where}.{key}", texts or (), names=index, calls=())
        return plans.Launch(
            kernel=launch.kernel,
            variant=self.variants.index(params),
            when=launch.when,
            grid=launch.grid,
            block=launch.block,
            smem=launch.smem,
            cluster=launch.cluster,
            cooperative=launch.cooperative,
            pdl=launch.pdl,
            repeat=launch.repeat,
            index=launch.index,
            args=tuple(
                self._argument(f"{where}.args[{n}]", text, index) for n, text in enumerate(launch.args)
            ),
        )

    def _argument(self, where: str, text: str, index: list[str]) -> Argument:
        name, kind = argument(text)
        if kind:
            self._check(where, [name], names=index, kernel=True)
            return Argument(kind, name)
        if name in self.manifest.tensormap:
            in_memory = self.manifest.tensormap[name].place == "scratch"
            return Argument("pointer", f"map:{name}") if in_memory else Argument("map", name)
        if name in self.sizes or name in self.manifest.params or name in (*FACTS, *index):
            raise _wrong(where, f"{name!r} is a number without a type", f'write "{name}:i32" or the like')
        return Argument("pointer", self._buffer(where, name, self.manifest.tensormap))

    def _memset(self, where: str, memset: Memset) -> plans.Memset:
        buffer = self._buffer(f"{where}.target", memset.target)
        if buffer.startswith("input:"):
            raise _wrong(f"{where}.target", f"{memset.target!r} is an input", "inputs stay as they are")
        for key, text in (("offset", memset.offset), ("bytes", memset.bytes), ("when", memset.when)):
            self._check(f"{where}.{key}", [] if text is None else [text])
        return plans.Memset(buffer, memset.value, memset.offset, memset.bytes, memset.when, memset.before)

    def _map(self, where: str, item: TensorMap) -> tensormaps.TensorMap:
        buffer = self._buffer(f"{where}.of", item.of)
        if item.index in self.sizes or item.index in (*self.manifest.params, *FACTS):
            raise _wrong(f"{where}.index", f"{item.index!r} has a meaning already", "choose another name")
        for key in ("dims", "strides", "box", "element_strides"):
            self._check(f"{where}.{key}", getattr(item, key) or (), calls=())
        self._check(f"{where}.count", [item.count], calls=())
        self._check(f"{where}.offset", [item.offset], names=[item.index], calls=())
        memory = self.tensors.get(item.of) or self.manifest.scratch[item.of]
        return tensormaps.TensorMap(
            buffer=buffer,
            dtype=item.dtype or memory.dtype,
            dims=item.dims,
            strides=item.strides,
            box=item.box,
            element_strides=item.element_strides,
            swizzle=0 if item.swizzle == "none" else item.swizzle,
            interleave=0 if item.interleave == "none" else item.interleave,
            l2=0 if item.l2 == "none" else item.l2,
            is_nan_filled=item.fill == "nan",
            in_memory=item.place == "scratch",
            count=item.count,
            index=item.index,
            offset=item.offset,
        )

    def _buffer(self, where: str, name: str, others: Collection[str] = ()) -> str:
        if name in self.tensors:
            return self.tensors[name].buffer
        if name in self.manifest.scratch:
            return f"scratch:{name}"
        known = [*self.tensors, *self.manifest.scratch, *others]
        raise _wrong(where, f"there is no memory {name!r}", suggest(name, known))

    def _check(
        self,
        where: str,
        texts: Collection[str],
        *,
        names: Collection[str] = (),
        calls: Collection[str] = OCCUPANCY,
        kernel: bool = False,
    ) -> None:
        """Refuse an expression with a name that means nothing, or a call that is not for here."""
        words = {name for name, value in self.manifest.params.items() if isinstance(value, str)}
        known = {*self.sizes, *self.manifest.params, *FACTS, *names} - words
        for n, text in enumerate(texts):
            place = f"{where}[{n}]" if where.endswith(("grid", "block", "cluster", "shape")) else where
            used = expressions.called_names(text, OCCUPANCY)
            for function, name in sorted(used):
                if function not in calls:
                    raise _wrong(place, f"{text!r} calls {function}", "write what it comes to without it")
                if not self._is_kernel(name) and not (kernel and name == "kernel"):
                    kernels = dict.fromkeys(launch.kernel for launch in self.manifest.launch)
                    raise _wrong(place, f"{text!r} asks for a kernel {name!r}", suggest(name, kernels))
            for name in sorted(expressions.free_names(text, calls=OCCUPANCY) - known):
                if name in words:
                    raise _wrong(
                        place, f"{text!r} uses {name!r}, which is a word", "words are for macros only"
                    )
                raise _wrong(place, f"{text!r} uses {name!r}, which means nothing", suggest(name, known))

    def _is_kernel(self, name: str) -> bool:
        return any(squeezed(launch.kernel) == squeezed(name) for launch in self.manifest.launch)


def _variants(manifest: Manifest) -> tuple[dict[str, Param], ...]:
    """Return the distinct parameters that launches are built with; the manifest's own come first."""
    found: list[dict[str, Param]] = [dict(manifest.params)]
    for number, launch in enumerate(manifest.launch):
        params = {**manifest.params, **launch.params}
        if params not in found:
            found.append(params)
        if len(found) > MAX_VARIANTS:
            raise _wrong(
                f"launch[{number}].params",
                f"{len(found)} builds",
                f"use at most {MAX_VARIANTS} in a manifest",
            )
    return tuple(found)


def _wrong(where: str, what: str, remedy: str) -> BadInput:
    return BadInput(what, where=WHERE + where, remedy=remedy)
