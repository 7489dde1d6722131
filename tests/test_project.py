"""The shape of the project: imports go down only, importing does nothing, and the pins are sound."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "swarm").rglob("*.py")
)
LAYERS = (
    ("cli",),
    ("report", "review", "apply", "plan", "pending", "away", "intake"),
    ("watcher", "planner", "agents", "bundle", "importers"),
    ("pool",),
    ("judge", "languages", "sandbox", "box", "extract"),
    ("ledger", "baseline", "board", "knowledge", "hub", "role", "status", "requests", "changes"),
    (
        "protocol", "config", "problem", "definition", "workload", "schema", "expressions", "solution",
        "launch", "sources", "settings", "scan", "verdict", "sol", "job", "device", "tensorfile",
        "peaks_table", "submission", "records",
    ),
    ("layout", "locks", "durable", "contents", "stamps", "git", "gitobjects", "gitprogram", "messages",
     "parcel", "environment"),
    ("errors", "foreign"),
)  # fmt: skip
"""Top first; a module may import from its own layer and from those below. `hub` stands for hub_*.py too."""
POOL_PROTOCOL = "pool.protocol"
"""The seam the watcher and its tests share with pools: types only, so it counts as a noun."""
LEVEL = {name: level for level, layer in enumerate(LAYERS) for name in layer}
HEAVY = ("torch", "optuna", "matplotlib", "openai", "git", "cuda", "numpy")
TORCH_ALLOWED = ("swarm.judge", "swarm.languages", "swarm.extract.child")


def imports_of(module: str) -> list[tuple[str, bool]]:
    """Return the modules that `module` imports, and whether at import time."""
    path = ROOT.joinpath(*module.split("."))
    source = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    late = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(node)
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node not in late) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} line {node.lineno}: relative import"
            target = node.module or ""
            names = [f"{target}.{alias.name}" for alias in node.names]
            found += [(name if name in MODULES else target, node not in late) for name in names]
    return found


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def level_of(module: str) -> int | None:
    name = module.removeprefix("swarm.")
    if name == POOL_PROTOCOL:
        return LEVEL["protocol"]
    noun = name.partition(".")[0]
    return LEVEL.get(noun, LEVEL.get(noun.partition("_")[0]))


@pytest.mark.parametrize("module", MODULES)
def test_module_has_a_layer_and_imports_only_downwards(module: str) -> None:
    if module == "swarm":
        assert imports_of(module) == [("__future__", True)] or not imports_of(module)
        return
    level = level_of(module)
    assert level is not None, f"{module} is in no layer of DESIGN's list; add it to LAYERS where it belongs"
    for target, _ in imports_of(module):
        if target.startswith("swarm.") and (below := level_of(target)) is not None:
            assert below >= level, f"{module} imports {target}, which lies above it"


def test_only_git_py_imports_gitpython() -> None:
    users = {m for m in MODULES for target, _ in imports_of(m) if target.partition(".")[0] == "git"}
    assert users <= {"swarm.git"}


def test_only_judge_and_languages_import_torch() -> None:
    users = {m for m in MODULES for target, _ in imports_of(m) if target.partition(".")[0] == "torch"}
    assert [m for m in sorted(users) if not m.startswith(TORCH_ALLOWED)] == []


IMPORT_EACH = """
import importlib, json, sys
for heavy in {heavy!r}:
    assert heavy not in sys.modules
loaded = {{}}
for module in {modules!r}:
    importlib.import_module(module)
    loaded[module] = [heavy for heavy in {heavy!r} if heavy in sys.modules]
print(json.dumps(loaded))
"""


def importable() -> list[str]:
    """Every module but the entry points of processes that exist to import torch."""
    return [m for m in MODULES if not m.endswith(("_main", ".main")) and not _runs_as_a_file(m)]


def _runs_as_a_file(module: str) -> bool:
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return path.is_file() and "native" in path.parts


def test_importing_a_module_loads_nothing_heavy_and_prints_nothing() -> None:
    modules = [m for m in importable() if not m.startswith(TORCH_ALLOWED)]
    code = IMPORT_EACH.format(heavy=HEAVY, modules=modules)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1, f"importing printed: {lines[:-1]}"
    guilty = {module: heavy for module, heavy in json.loads(lines[0]).items() if heavy}
    assert guilty == {}, "the first of these is where it came in"


IMPORT_ALONE = """
import importlib, json, os, sys
import click, pydantic, rich, torch
failed = {{}}
for module in {modules!r}:
    child = os.fork()
    if child == 0:
        os.dup2(1, 2)
        importlib.import_module(module)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed[module] = "see above"
print(json.dumps(failed), flush=True)
"""
"""Each in a process of its own that has seen none of ours, but what is slow to load and not ours already."""


def test_every_module_can_be_imported_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALONE.format(modules=importable())],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {}, done.stdout


def test_the_command_line_imports_little() -> None:
    """`swarm --help` is quick: what would make it slow is third-party code, so that is what is checked."""
    code = "import sys; import swarm.cli.main; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    ours = {name for name in done.stdout.split() if name not in sys.stdlib_module_names and name[0] != "_"}
    assert ours - {"click", "swarm", "sitecustomize", "typing_extensions", "colorama"} <= _from_site_files()


def _from_site_files() -> set[str]:
    """What any interpreter here loads before our code, such as hooks of editable installs."""
    code = "import sys; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split())


def test_every_dependency_is_pinned_once_without_local_version_or_hash() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*", line)] == []
    names = [_canonical(line.partition("==")[0]) for line in pins]
    assert len(names) == len(set(names))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(d for extra in project["optional-dependencies"].values() for d in extra),
    ]
    unpinned = {_canonical(re.split(r"[>=<\[; ]", d)[0]) for d in wanted} - set(names)
    assert unpinned == set()
    assert "torch==2.13.0" in pins


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_no_module_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "common", "misc", "manager", "handler"}
    assert [m for m in MODULES if m.rpartition(".")[2] in drawers] == []
