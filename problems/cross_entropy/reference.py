from torch.nn.functional import cross_entropy


def run(logits, target):
    return cross_entropy(logits, target, reduction="none")
