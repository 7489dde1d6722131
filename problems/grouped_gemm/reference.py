import torch


def run(x, weight, ends):
    begin, parts = 0, []
    for expert, end in enumerate(ends.tolist()):
        parts.append(x[begin:end] @ weight[expert].T)
        begin = end
    return torch.cat(parts)


def make_inputs(axes, device):
    experts, active, rows = axes["experts"], axes["active"], axes["rows"]
    out_features, in_features = axes["out_features"], axes["in_features"]
    # each active expert gets a row; the others fall to them by a popularity that differs much
    popularity = torch.rand(active, device=device) ** 2 + 0.01
    more = torch.multinomial(popularity, rows - active, replacement=True)
    counts = torch.zeros(experts, dtype=torch.int64, device=device)
    counts[torch.randperm(experts, device=device)[:active]] = 1 + torch.bincount(more, minlength=active)
    like = {"dtype": torch.bfloat16, "device": device}
    return {
        "x": torch.randn(rows, in_features, **like),
        "weight": torch.randn(experts, out_features, in_features, **like) * in_features**-0.5,
        "ends": counts.cumsum(0).int(),
    }
