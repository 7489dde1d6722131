"""Leaves out most of what is not seen, and multiplies on tensor cores.

TF32 holds every bfloat16, so that only the weights and their gradients are rounded, by 0.05 % at most.
"""

import math

import torch

PARTS = 8
"""Of a sequence's queries; a part looks at no key beyond its last token."""


def run(query, key, value, output, lse, grad_output):
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        each = [gradients(*one) for one in zip(query, key, value, output, lse, grad_output, strict=True)]
    finally:
        torch.set_float32_matmul_precision(precision)
    return tuple(torch.stack(grads).to(query.dtype) for grads in zip(*each, strict=True))


def gradients(query, key, value, output, lse, grad_output):
    """Return the gradients of one sequence: query (tokens, heads, size), lse (heads, tokens)."""
    tokens, heads, size = query.shape
    kv_heads = key.shape[1]
    keys, values = key.float().transpose(0, 1), value.float().transpose(0, 1)
    share = (grad_output.float() * output.float()).sum(-1).T
    grad_query = torch.empty(tokens, heads, size, device=query.device)
    grad_keys, grad_values = torch.zeros_like(keys), torch.zeros_like(values)
    step = math.ceil(tokens / PARTS)
    for begin in range(0, tokens, step):
        end = min(begin + step, tokens)
        count = end - begin
        k, v = keys[:, :end], values[:, :end]
        q, do = (
            x[begin:end].float().transpose(0, 1).reshape(kv_heads, -1, size) for x in (query, grad_output)
        )
        total, delta = (x[:, begin:end].float().reshape(kv_heads, -1, 1) for x in (lse, share))
        weights = (torch.bmm(q, k.transpose(1, 2)) / math.sqrt(size)).sub_(total).exp_()
        unseen = torch.ones(count, end, dtype=torch.bool, device=query.device).triu(begin + 1)
        weights.view(heads, count, end).masked_fill_(unseen, 0)
        grad_values[:, :end] += torch.bmm(weights.transpose(1, 2), do)
        grad_scores = torch.bmm(do, v.transpose(1, 2)).sub_(delta).mul_(weights).div_(math.sqrt(size))
        grad_keys[:, :end] += torch.bmm(grad_scores.transpose(1, 2), q)
        grad_query[begin:end] = torch.bmm(grad_scores, k).view(heads, count, size).transpose(0, 1)
    return grad_query, grad_keys.transpose(0, 1), grad_values.transpose(0, 1)
