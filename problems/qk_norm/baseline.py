"""PyTorch's own RMSNorm, one fused kernel for the queries and one for the keys."""

from torch.nn.functional import rms_norm


def run(query, key, query_weight, key_weight):
    return (
        rms_norm(query, query_weight.shape, query_weight, 1e-6),
        rms_norm(key, key_weight.shape, key_weight, 1e-6),
    )
