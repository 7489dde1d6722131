import torch

EXPERTS, TOP_K, HIDDEN = 128, 8, 2048


def run(hidden_states, chosen):
    ranked, order = torch.sort(chosen.flatten(), stable=True)
    permuted = hidden_states[order // TOP_K]
    ends = torch.searchsorted(ranked, torch.arange(EXPERTS, device=chosen.device), right=True)
    position = torch.empty_like(order)
    position[order] = torch.arange(len(order), device=chosen.device)
    return permuted, ends.int(), position.view_as(chosen).int()


def make_inputs(axes, device):
    tokens = axes["tokens"]
    popularity = torch.randn(EXPERTS, device=device)  # so that experts get unlike numbers of rows
    liking = torch.randn(tokens, EXPERTS, device=device) + popularity
    return {
        "hidden_states": torch.randn(tokens, HIDDEN, dtype=torch.bfloat16, device=device),
        "chosen": liking.topk(TOP_K).indices.int(),
    }
