"""Top-k instead of a sort. torch.topk promises no order of equal values, so it ranks numbers that differ."""

import torch

TOP_K = 8


def run(router_logits):
    bits = (router_logits + 0.0).view(torch.int16).int()  # + 0 makes -0 a 0
    rank = torch.where(bits < 0, bits ^ 0x7FFF, bits)  # integers in the order of the floats
    experts = router_logits.shape[-1]
    last_first = torch.arange(experts - 1, -1, -1, dtype=torch.int32, device=bits.device)
    best = torch.topk(rank * experts + last_first, TOP_K).values
    chosen = experts - 1 - best % experts
    weights = torch.softmax(router_logits.gather(1, chosen.long()).float(), dim=-1)
    return weights, chosen
