import torch

TOP_K = 8


def run(router_logits):
    ranked, expert = torch.sort(router_logits, dim=-1, descending=True, stable=True)
    weights = torch.softmax(ranked[:, :TOP_K].float(), dim=-1)
    return weights, expert[:, :TOP_K].int()
