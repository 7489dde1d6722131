"""Compiler options of submissions and manifests: what is used here, what is a parameter, what is kept."""

from __future__ import annotations

import re
from collections.abc import Collection

from swarm.launch import Param
from swarm.solution import Manifest
from swarm.submission import CompileOptions, Exchange

LIBRARY = re.compile(r"-l(?!ineinfo)")
PARAM = re.compile(r"(?!SWARM_)[A-Z][A-Z0-9_]{0,63}")
WORD = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
DEFINE = re.compile(rf"-D({PARAM.pattern})=(.+)")


def sorted_options(
    given: CompileOptions | None, allowed: Collection[str]
) -> tuple[tuple[str, ...], dict[str, Param], tuple[str, ...]]:
    """Return a submission's options as those used here, macros that can be parameters, and the rest."""
    options: list[str] = []
    params: dict[str, Param] = {}
    left_out: list[str] = []
    for option in (*given.cuda_cflags, *given.ld_flags) if given else ():
        macro = _param(option)
        if option in allowed:
            options.append(option)
        elif macro is not None and macro[0] not in params:
            params[macro[0]] = macro[1]
        elif macro is None or params[macro[0]] != macro[1]:
            left_out.append(option)
    for option in given.cflags if given else ():
        macro = _param(option)
        if macro is None or (macro[0], params.get(macro[0])) != macro:
            left_out.append(option)
    return tuple(dict.fromkeys(options)), params, tuple(dict.fromkeys(left_out))


def options_of(manifest: Manifest, kept: Exchange) -> CompileOptions | None:
    """Return the compiler options that a tree's submission needs; as they were, if nothing has changed."""
    macros = {name: define(name, value) for name, value in manifest.params.items()}
    linked = tuple(option for option in manifest.compile.options if LIBRARY.match(option))
    compiled = tuple(option for option in manifest.compile.options if option not in linked)
    if kept.compile_options is None:
        is_new = kept.binding is None
        if not is_new and not manifest.compile.options and not macros:
            return None
        optimised = any(option.startswith(("-O", "--optimize")) for option in compiled)
        return CompileOptions(
            cflags=tuple(macros.values()),
            cuda_cflags=(*(("-O3",) if is_new and not optimised else ()), *compiled, *macros.values()),
            ld_flags=tuple(dict.fromkeys((*(("-lcuda",) if is_new else ()), *linked))),
        )

    def current(options: tuple[str, ...]) -> tuple[str, ...]:
        """Keep what was never ours to change, and bring parameters to their values."""
        result = []
        for option in options:
            macro = _param(option)
            if option in kept.left_out or option in manifest.compile.options:
                result.append(option)
            elif macro is not None and macro[0] in macros:
                result.append(macros[macro[0]])
        return tuple(result)

    given = kept.compile_options
    cuda, ld = current(given.cuda_cflags), current(given.ld_flags)
    there = {*cuda, *ld}
    return CompileOptions(
        cflags=current(given.cflags),
        cuda_cflags=(*cuda, *(option for option in (*compiled, *macros.values()) if option not in there)),
        ld_flags=(*ld, *(option for option in linked if option not in there)),
    )


def define(name: str, value: Param) -> str:
    """Return the compiler option that sets a parameter."""
    return f"-D{name}={value}"


def _param(option: str) -> tuple[str, Param] | None:
    """Return the parameter that an option defines, if it is written exactly as we would write it."""
    match = DEFINE.fullmatch(option)
    if match is None:
        return None
    readings: list[Param] = []
    for kind in (int, float):
        try:
            readings.append(kind(match[2]))
        except ValueError:
            continue
    if WORD.fullmatch(match[2]):
        readings = [match[2]]
    return next(((match[1], value) for value in readings if define(match[1], value) == option), None)
