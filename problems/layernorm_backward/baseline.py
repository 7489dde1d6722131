"""PyTorch's own LayerNorm, for the statistics, and the backward pass that autograd would call."""

import torch


def run(grad_output, hidden_states, weight):
    shape, bias = weight.shape, torch.zeros_like(weight)
    _, mean, scale = torch.ops.aten.native_layer_norm(hidden_states, shape, weight, bias, 1e-5)
    return torch.ops.aten.native_layer_norm_backward(
        grad_output, hidden_states, shape, mean, scale, weight, bias, [True, True, True]
    )
