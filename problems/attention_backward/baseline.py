"""torch's FlashAttention on a GPU; on a CPU, where there is none that takes `lse`, autograd through SDPA."""

import torch


def run(query, key, value, output, lse, grad_output):
    batch, tokens = query.shape[:2]
    if query.is_cuda:
        starts = torch.arange(0, (batch + 1) * tokens, tokens, dtype=torch.int32, device=query.device)
        no_dropout = torch.zeros(2, dtype=torch.uint64, device=query.device)
        rows = (x.flatten(0, 1) for x in (grad_output, query, key, value, output))
        grads = torch.ops.aten._flash_attention_backward(
            *(*rows, lse.transpose(0, 1).flatten(1).contiguous(), starts, starts, tokens, tokens, 0.0, True),
            *(no_dropout, no_dropout),
        )
        return tuple(x.unflatten(0, (batch, tokens)) for x in grads)
    with torch.enable_grad():
        given = [x.transpose(1, 2).detach().requires_grad_() for x in (query, key, value)]
        again = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=True, enable_gqa=True)
        grads = torch.autograd.grad(again, given, grad_output.transpose(1, 2))
    return tuple(x.transpose(1, 2) for x in grads)
