"""PyTorch's own RMSNorm and the backward pass that autograd has for it: one fused kernel each on a GPU."""

import torch
from torch.nn.functional import rms_norm


def run(grad_output, hidden_states, weight):
    with torch.enable_grad():
        leaves = hidden_states.detach().requires_grad_(), weight.detach().requires_grad_()
        output = rms_norm(leaves[0], weight.shape, leaves[1], 1e-5)
        return torch.autograd.grad(output, leaves, grad_output)
