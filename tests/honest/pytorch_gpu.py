"""Honest candidates in PyTorch on a GPU."""

from __future__ import annotations

from functools import partial

from tests.corpus.cases import Files, honest
from tests.honest.pytorch import torch_code

on_gpu = partial(honest, on="gpu")


@on_gpu()
def normalised_on_the_gpu() -> Files:
    """PyTorch's own operations, as anybody would write them at first.

    Looks like: B12, the baseline itself.
    """
    return torch_code("""
def run(x, w, y):
    y.copy_(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w)
""")


@on_gpu()
def returns_its_output() -> Files:
    """Allocates its output and returns it, as most code that is not written for a benchmark does.

    Looks like: A4, an output that is an object of the candidate's.
    """
    files = torch_code("""
def run(x, w):
    return torch.nn.functional.rms_norm(x, (512,), w, 1e-5)
""")
    return files | {"solution.toml": files["solution.toml"] + b"destination_passing = false\n"}


@on_gpu()
def kernels_made_by_the_first_call() -> Files:
    """Has torch compile the function for any number of rows: the first call takes many seconds.

    Looks like: A9, a first call that is unlike the others.
    """
    return torch_code("""
@torch.compile(dynamic=True)
def normalised(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w


def run(x, w, y):
    y.copy_(normalised(x, w))
""")


@on_gpu()
def two_streams_that_meet_again() -> Files:
    """Half of the rows on a stream of its own, which waits for the caller's and is waited for.

    Looks like: A1, work on a stream that is not the caller's.
    """
    return torch_code("""
side = torch.cuda.Stream()


def normalise(x, w, y):
    torch.mul(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5), w, out=y)


def run(x, w, y):
    half = x.shape[0] // 2
    caller = torch.cuda.current_stream()
    side.wait_stream(caller)
    with torch.cuda.stream(side):
        normalise(x[half:], w, y[half:])
    normalise(x[:half], w, y[:half])
    caller.wait_stream(side)
""")


@on_gpu()
def graph_fed_by_copies() -> Files:
    """Captures the work on tensors of its own once for each size; a call copies in, replays and copies out.

    Looks like: A10 and B3, a graph that is kept and replayed; its inputs are new in every call.
    """
    return torch_code("""
graphs = {}


def normalise(x, w, y):
    torch.mul(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5), w, out=y)


def captured(x, w):
    own = x.clone(), w.clone(), torch.empty_like(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        normalise(*own)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        normalise(*own)
    return graph, own


def run(x, w, y):
    if x.shape not in graphs:
        graphs[x.shape] = captured(x, w)
    graph, own = graphs[x.shape]
    own[0].copy_(x)
    own[1].copy_(w)
    graph.replay()
    y.copy_(own[2])
""")


@on_gpu(problem="scan")
def triangle_kept_on_the_device() -> Files:
    """A product in double precision with a triangle of ones, which is made once and cached.

    Looks like: B3, a cache; what it holds depends on no input.
    """
    return torch_code("""
from functools import lru_cache


@lru_cache
def triangle(columns, device):
    return torch.ones(columns, columns, dtype=torch.float64, device=device).triu()


def run(x, y):
    for rows, to in zip(x.split(4096), y.split(4096)):
        to.copy_(rows.double() @ triangle(x.shape[1], x.device))
""")


@on_gpu(problem="product")
def library_in_the_narrow_type() -> Files:
    """The library's product of bf16 matrices, which splits and rounds sums as it likes.

    Looks like: B9, a lower precision than the reference's; the problem's tolerance allows it.
    """
    return torch_code("""
def run(a, weight, c):
    torch.mm(a, weight, out=c)
""")


@on_gpu(problem="gather")
def each_entry_asked_for_once() -> Files:
    """Finds out which entries are asked for, works those out, and hands the results to all who asked.

    Looks like: B3, results that are used again; within one call.
    """
    return torch_code("""
def run(table, index, y):
    asked, which = torch.unique(index, return_inverse=True)
    torch.index_select(torch.softmax(table[asked], -1), 0, which, out=y)
""")
