"""The fastest call in PyTorch for int8 weights with one scale per row (CPU; one token is a batch of one)."""

import torch


def run(x, weight, scales):
    return torch._weight_int8pack_mm(x[None], weight, scales)[0]
