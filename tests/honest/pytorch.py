"""Honest candidates in PyTorch on the CPU."""

from __future__ import annotations

from functools import partial

from tests.corpus.cases import Files, honest, python

on_cpu = partial(honest, on="cpu")


def torch_code(source: str) -> Files:
    return python(f"import torch\n{source}", "pytorch")


@on_cpu()
def results_go_where_they_belong() -> Files:
    """Has every operation write into the output, which holds the steps between as well.

    Looks like: B13, an output that is written several times.
    """
    return torch_code("""
def run(x, w, y):
    torch.square(x, out=y)
    scale = y.mean(-1, keepdim=True).add_(1e-5).rsqrt_()
    torch.mul(x, scale, out=y)
    y.mul_(w)
""")


@on_cpu()
def scratch_by_size() -> Files:
    """Keeps a scratch tensor for each size it was called with, and overwrites it in every call.

    Looks like: B3, a dictionary that is kept between calls.
    """
    return torch_code("""
scratch = {}


def run(x, w, y):
    if x.shape not in scratch:
        scratch[x.shape] = torch.empty_like(x), torch.empty(x.shape[0], 1)
    squares, scale = scratch[x.shape]
    torch.mul(x, x, out=squares)
    torch.sum(squares, -1, keepdim=True, out=scale)
    scale.div_(512).add_(1e-5).rsqrt_()
    torch.mul(x, scale, out=y).mul_(w)
""")


@on_cpu()
def layer_made_by_the_import() -> Files:
    """A module of layers that is built and set to inference when the file is imported.

    Looks like: C2, work at import; and a method whose name is a built-in function's.
    """
    return torch_code("""
class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean_of", torch.full((512, 1), 1 / 512))

    def forward(self, x, w):
        return x * torch.rsqrt(x.square() @ self.mean_of + 1e-5) * w


norm = Norm().eval()


@torch.inference_mode()
def run(x, w, y):
    y.copy_(norm(x, w))
""")


@on_cpu()
def other_way_round() -> Files:
    """Works on the transposed input and writes into a transposed view of the output, in uneven stripes.

    Looks like: B8, strides that are not the definition's.
    """
    return torch_code("""
def run(x, w, y):
    columns = x.t().contiguous()
    scale = columns.square().mean(0).add(1e-5).rsqrt()
    for begin in range(0, 512, 200):
        part = slice(begin, min(begin + 200, 512))
        y.t()[part] = columns[part] * scale * w[part].unsqueeze(1)
""")


@on_cpu()
def several_files_and_a_parameter() -> Files:
    """Two files that import each other's functions, and a parameter of the manifest.

    Looks like: C2, modules beside the kernel.
    """
    manifest = (
        b'language = "pytorch"\nsources = ["kernel.py", "norms/blocks.py"]\nentry = "kernel.py::run"\n'
        b"[params]\nBLOCK = 24\n"
    )
    kernel = b"""\
from norms.blocks import blocks, normalise


def run(x, w, y):
    for part in blocks(x.shape[0]):
        normalise(x[part], w, y[part])
"""
    helper = b"""\
import torch
from params import BLOCK


def blocks(rows):
    return (slice(begin, begin + BLOCK) for begin in range(0, rows, BLOCK))


def normalise(x, w, y):
    torch.mul(x * torch.rsqrt(x.double().square().mean(-1, keepdim=True) + 1e-5).float(), w, out=y)
"""
    return {"solution.toml": manifest, "kernel.py": kernel, "norms/blocks.py": helper}


@on_cpu(problem="scan")
def sums_by_a_matrix_that_is_kept() -> Files:
    """A product with a triangle of ones, which is made once and cached.

    Looks like: B3, a cache; what it holds depends on no input.
    """
    return torch_code("""
from functools import lru_cache


@lru_cache
def triangle(columns: int) -> torch.Tensor:
    return torch.ones(columns, columns).triu()


def run(x, y):
    torch.mm(x, triangle(x.shape[1]), out=y)
""")


@on_cpu(problem="order")
def sorted_into_the_output() -> Files:
    """The library's sort, which writes into the output and into indices that nobody wants.

    Looks like: B12, the baseline in other clothes; a `pytorch` solution may be just that.
    """
    return torch_code("""
def run(x, y):
    torch.sort(x, dim=-1, out=(y, torch.empty(x.shape, dtype=torch.int64)))
""")


@on_cpu(problem="counts")
def counted_by_scattering() -> Files:
    """Adds ones to the output where the values say.

    Looks like: B11, many additions to one place.
    """
    return torch_code("""
def run(x, y):
    y.zero_()
    y.index_add_(0, x, torch.ones_like(x))
""")


@on_cpu(problem="gather")
def each_entry_once() -> Files:
    """Finds out which entries are asked for, works those out, and hands the results to all who asked.

    Looks like: B3, results that are used again; within one call.
    """
    return torch_code("""
def run(table, index, y):
    asked, which = torch.unique(index, return_inverse=True)
    torch.index_select(torch.softmax(table[asked], -1), 0, which, out=y)
""")


@on_cpu(problem="ragged")
def rows_of_like_length_together() -> Files:
    """Sorts the rows by length, and takes groups of them with no more columns than the longest has.

    Looks like: B8, columns that are left out.
    """
    return torch_code("""
def run(x, length, y):
    y.zero_()
    order = torch.argsort(length)
    for rows in order.split(16):
        most = int(length[rows].max())
        outside = torch.arange(most) >= length[rows].unsqueeze(1)
        y[rows, :most] = torch.softmax(x[rows, :most].masked_fill(outside, -torch.inf), -1)
""")


@on_cpu(problem="pair")
def both_outputs_at_once() -> Files:
    """Fills one output through a view of a new shape, and divides by it into the other.

    Looks like: B1, an output that is read.
    """
    return torch_code("""
def run(x, y, largest):
    torch.amax(x.abs(), -1, keepdim=True, out=largest.view(-1, 1))
    torch.div(x, largest.clamp(min=1e-6).unsqueeze(1), out=y)
""")


@on_cpu(problem="product")
def product_in_the_narrow_type() -> Files:
    """A product of bf16 matrices that the library rounds and adds as it likes.

    Looks like: B9, a lower precision than the reference's; the problem's tolerance allows it.
    """
    return torch_code("""
def run(a, weight, c):
    torch.mm(a, weight, out=c)
""")
