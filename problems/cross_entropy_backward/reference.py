import torch


def run(logits, target, grad_loss):
    grad = torch.softmax(logits.float(), dim=-1)
    grad[torch.arange(len(target), device=target.device), target] -= 1
    return (grad * grad_loss[:, None]).to(logits.dtype)
