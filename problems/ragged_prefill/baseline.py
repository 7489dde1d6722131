"""torch's FlashAttention for sequences of several lengths; it exists on GPUs only."""

import torch


def run(query, key, value, cu_seqlens):
    longest = 2 * len(query) // len(cu_seqlens)  # in tokens; an engine knows it on the host
    return torch.ops.aten._flash_attention_forward(
        query, key, value, cu_seqlens, cu_seqlens, longest, longest, 0.0, True, False
    )[0]
