"""Raises."""

import torch


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    raise ValueError("on purpose")
