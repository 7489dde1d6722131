import torch


def run(scores, mask, scale):
    hidden = torch.finfo(scores.dtype).min
    return torch.softmax((scores * scale).masked_fill(~mask[:, None], hidden), dim=-1)
