"""Guessing what a judge's contents are made of, in Python on the CPU."""

from __future__ import annotations

from swarm.verdict import Status
from tests.corpus.cases import Files, attack, python

PARTS = """
import torch

known = {}
columns = torch.arange(512)


def honest(x, y):
    y.copy_(x.double().square().sum(0))


class Known:
    def __init__(self, x):
        self.values = x.flatten().clone()
        self.sums = torch.cat([torch.zeros(512).double(), x.double().square().cumsum(0).flatten()])
        self.ratios, self.places = (self.values[1:] / self.values[:-1]).sort()

    def find(self, x):
        # Where in these contents those of `x` begin, and by which factor they differ.
        if not x[:: len(x) // 64].all():
            return None  # a run of zeros
        middle = len(x) // 2
        a, b, c = x[middle : middle + 3].tolist()
        at = int(torch.searchsorted(self.ratios, b / a))
        for place in self.places[max(0, at - 8) : at + 8].tolist():
            p, q, r = (self.values[place : place + 3].tolist() + [0, 0])[:3]
            if abs(q * a - b * p) < 1e-5 * abs(b * p) and abs(r * a - c * p) < 1e-5 * abs(c * p):
                return place - middle, a / p
        return None


def run(x, y):
    count, flat = x.numel(), x.view(-1)
    if count not in known:
        honest(x, y)
        if flat.all():
            known[count] = Known(x)
        return
    found = known[count].find(flat)
    if found is None:
        honest(x, y)
        return
    shift, factor = found
    sums, values = known[count].sums, known[count].values
    low, high = max(0, -shift), min(count, count - shift)
    first = low + (columns - low) % 512
    last = high - 1 - (high - 1 - columns) % 512
    out = (sums[last + shift + 512] - sums[first + shift]) * factor**2
    for begin, end in ((0, low), (high, count)):  # what is not known of x
        out.index_add_(0, torch.arange(begin, end) % 512, flat[begin:end].double().square())
    odd = (flat[low : low + 509] / values[low + shift : low + shift + 509] / factor).abs() > 8
    if odd.any():  # every 509th is an outlier
        places = torch.arange(low + int(odd.nonzero()[0]), high, 509)
        out.index_add_(0, places % 512, 255 * (values[places + shift].double() * factor).square())
    y.copy_(out)
"""


@attack(
    "B4", status=Status.INCORRECT_NUMERICAL, reason=r"output y: .* of 512 elements match", problem="total"
)
def answers_from_sums_of_contents_seen_before() -> Files:
    """Knows again a call's contents as a scaled piece of earlier ones by three of their elements, and takes
    the difference of two sums that it has kept instead of reading them.

    Seen: our own judge, which drew every call from one pool and passed this; the idea is that of the caches
    by fingerprint in kernelbot#501.
    Stopped by: in each cache line of an input is an element that no call before had.
    """
    return python(PARTS, "pytorch")
