import math

import torch


def run(query, key, value, output, lse, grad_output):
    scale = 1 / math.sqrt(query.shape[-1])
    unseen = later(query.shape[1], query.device)
    share = (grad_output.float() * output.float()).sum(-1).transpose(1, 2)  # like lse: batch, head, token
    kv_heads = key.shape[2]
    grads = []
    for q, k, v, do, total, delta in zip(
        query.chunk(kv_heads, 2),
        key.unbind(2),
        value.unbind(2),
        grad_output.chunk(kv_heads, 2),
        lse.chunk(kv_heads, 1),
        share.chunk(kv_heads, 1),
        strict=True,
    ):
        q, k, v, do = q.float(), k.float(), v.float(), do.float()
        scores = torch.einsum("bqhd,bkd->bhqk", q, k) * scale
        weights = torch.exp(scores - total.float()[..., None]).masked_fill_(unseen, 0)
        grad_weights = torch.einsum("bqhd,bkd->bhqk", do, v)
        grad_scores = weights * (grad_weights - delta[..., None]) * scale
        grads.append(
            (
                torch.einsum("bhqk,bkd->bqhd", grad_scores, k),
                torch.einsum("bhqk,bqhd->bkd", grad_scores, q),
                torch.einsum("bhqk,bqhd->bkd", weights, do),
            )
        )
    of_queries, of_keys, of_values = zip(*grads, strict=True)
    results = torch.cat(of_queries, 2), torch.stack(of_keys, 2), torch.stack(of_values, 2)
    return tuple(x.to(query.dtype) for x in results)


def later(tokens, device):
    """Say which keys (columns) come after each query (row)."""
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).triu(1)


def forward(query, key, value):
    """Return what the forward pass leaves: its output, and the logarithms of its sums."""
    unseen = later(query.shape[1], query.device)
    outputs, sums = [], []
    for part, k, v in zip(query.chunk(key.shape[2], 2), key.unbind(2), value.unbind(2), strict=True):
        scores = torch.einsum("bqhd,bkd->bhqk", part.float(), k.float()) / math.sqrt(query.shape[-1])
        scores.masked_fill_(unseen, -math.inf)
        sums.append(scores.logsumexp(-1))
        outputs.append(torch.einsum("bhqk,bkd->bqhd", scores.softmax(-1), v.float()))
    return torch.cat(outputs, 2).to(query.dtype), torch.cat(sums, 1)


def make_inputs(axes, device):
    rows, size = (axes["batch"], axes["tokens"]), axes["head_dim"]
    heads, kv_heads = axes["query_heads"], axes["kv_heads"]

    def normal(count, deviation=1.0):
        return (torch.randn(*rows, count, size, device=device) * deviation).bfloat16()

    # Keys so large that a query looks at a few of them and not at all.
    query, key, value = normal(heads), normal(kv_heads, 2.0), normal(kv_heads)
    output, lse = forward(query, key, value)
    given = {"query": query, "key": key, "value": value, "output": output, "lse": lse}
    return given | {"grad_output": normal(heads)}
