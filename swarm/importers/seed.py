"""The seed of an imported problem: its own reference, called as a solution is.

A run starts from a correct solution, and nobody but the reference is known to be one. It is slow where
optimised, which is what a seed is for; as `pytorch` it runs on a CPU and on a GPU alike.
"""

from __future__ import annotations

import ast

from swarm.definition import Definition
from swarm.protocol import Protocol
from swarm.schema import read_python
from swarm.solution import MANIFEST, validate_tree

SOURCE, ENTRY = "kernel.py", "solve"
DEVICE_MODULES = frozenset(("triton", "cutlass", "cuda", "cupy", "flashinfer", "deep_gemm"))
"""What a reference that imports one of them runs on: no CPU."""


def make_seed(definition: Definition, protocol: Protocol) -> tuple[str, dict[str, bytes]]:
    """Return the language and the files of a seed; BadInput if [rules] forbid what the reference does."""
    language = "triton" if "triton" in _modules(definition.reference) else "pytorch"
    manifest = f'language = "{language}"\nsources = ["{SOURCE}"]\nentry = "{SOURCE}::{ENTRY}"\n'
    code = f"{_without(definition.reference, definition.custom_inputs_entrypoint)}\n\n\n{_entry(definition)}"
    files = {MANIFEST: manifest.encode(), SOURCE: code.encode()}
    validate_tree(files, protocol, f"seed/{language}/")
    return language, files


def needs_gpu(reference: str) -> bool:
    """Say whether the text of a reference names a GPU, so that a CPU need not be asked."""
    for node in ast.walk(read_python(reference)):
        if isinstance(node, ast.Attribute) and node.attr == "cuda":
            return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cuda"):
            return True
    return bool(_modules(reference) & DEVICE_MODULES)


def _modules(reference: str) -> set[str]:
    found = set()
    for node in ast.walk(read_python(reference)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


def _without(reference: str, function: str | None) -> str:
    """Return the text without the function that draws inputs, which a solution has no use for."""
    lines = reference.rstrip().split("\n")
    for node in read_python(reference).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            del lines[first - 1 : node.end_lineno]
    return "\n".join(lines).strip("\n")


def _entry(definition: Definition) -> str:
    inputs, outputs = ", ".join(definition.inputs), list(definition.outputs)
    named = ", ".join(f'result["{name}"]' for name in outputs)
    lines = [
        f"def {ENTRY}({', '.join((*definition.inputs, *outputs))}):",
        '    """Call the reference, and put what it returns where it belongs."""',
        f"    result = run({inputs})",
        "    if isinstance(result, dict):",
        f"        result = [{named}]",
        "    if not isinstance(result, (tuple, list)):",
        "        result = [result]",
    ]
    for number, name in enumerate(outputs):
        is_packed = definition.outputs[name].dtype.is_packed
        as_bytes = ".view(torch.uint8)" if is_packed else ""
        lines.append(f"    {name}{as_bytes}.copy_(torch.as_tensor(result[{number}]){as_bytes})")
    return "\n".join(["import torch", "", "", *lines]) + "\n"
