import torch
from torch.nn.functional import silu

BLOCK = 16
LARGEST, LARGEST_SCALE = 6.0, 448.0  # of E2M1 and E4M3
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def run(
    hidden_states,
    expert_ids,
    expert_weights,
    hidden_scale,
    gate_up,
    gate_up_scales,
    gate_up_scale,
    intermediate_scale,
    down,
    down_scales,
    down_scale,
):
    x = quantised(hidden_states.float(), hidden_scale)
    output = torch.zeros_like(x)
    for e in expert_ids.unique().tolist():
        token, place = (expert_ids == e).nonzero(as_tuple=True)
        gate, up = (x[token] @ dequantised(gate_up[e], gate_up_scales[e], gate_up_scale[e]).T).chunk(2, -1)
        intermediate = quantised(silu(gate) * up, intermediate_scale[e])
        result = intermediate @ dequantised(down[e], down_scales[e], down_scale[e]).T
        output[token] += expert_weights[token, place, None] * result
    return output.to(hidden_states.dtype)


def dequantised(packed, scales, scale):
    """Return the numbers that packed E2M1 pairs stand for, with a scale for each block and one for all."""
    byte = packed.view(torch.uint8).int()
    pairs = torch.stack((byte & 15, byte >> 4), -1)
    values = torch.tensor(E2M1, device=packed.device)[pairs].flatten(-2)
    return (values.unflatten(-1, (-1, BLOCK)) * (scales.float() * scale)[..., None]).flatten(-2)


def quantised(x, scale):
    """Return the numbers that NVFP4 holds instead of x: the nearest that a block can have, ties to even."""
    blocks = x.unflatten(-1, (-1, BLOCK))
    largest = blocks.abs().amax(-1, keepdim=True)
    scales = (largest / (LARGEST * scale)).clamp(max=LARGEST_SCALE).to(torch.float8_e4m3fn)
    step = scales.float() * scale
    sizes = torch.where(step > 0, blocks.abs() / step, 0.0).clamp(max=LARGEST)
    spacing = torch.where(sizes < 2, 0.5, torch.where(sizes < 4, 1.0, 2.0))
    return ((sizes / spacing).round() * spacing * step).copysign(blocks).flatten(-2)


def make_inputs(axes, device):
    """Draw hidden states whose channels differ in size, and weights about 1 / sqrt(columns) in size."""
    tokens, hidden, intermediate = axes["tokens"], axes["hidden"], axes["intermediate"]
    experts, top_k = axes["experts"], axes["top_k"]

    def uniform(low, high, *shape):
        return torch.rand(shape, device=device) * (high - low) + low

    def weight(rows, columns):
        packed = torch.randint(256, (experts, rows, columns // 2), dtype=torch.uint8, device=device)
        scales = uniform(64, 320, experts, rows, columns // BLOCK).to(torch.float8_e4m3fn)
        return packed, scales, uniform(0.5, 1.5, experts) / (600 * columns**0.5)

    channels = (0.5 * torch.randn(hidden, device=device)).exp()
    gate_up, gate_up_scales, gate_up_scale = weight(2 * intermediate, hidden)
    down, down_scales, down_scale = weight(hidden, intermediate)
    return {
        "hidden_states": (channels * torch.randn(tokens, hidden, device=device)).bfloat16(),
        "expert_ids": routes(tokens, top_k, experts, axes["active_experts"], device),
        "expert_weights": torch.randn(tokens, top_k, device=device).softmax(-1),
        "hidden_scale": uniform(0.003, 0.006),
        "gate_up": gate_up,
        "gate_up_scales": gate_up_scales,
        "gate_up_scale": gate_up_scale,
        "intermediate_scale": uniform(0.002, 0.006, experts),
        "down": down,
        "down_scales": down_scales,
        "down_scale": down_scale,
    }


def routes(tokens, top_k, experts, active, device):
    """Draw different experts for each token, some more often than others, exactly `active` in all."""
    popularity = torch.randn(active, device=device).softmax(-1)
    chosen = torch.multinomial(popularity.expand(tokens, active), top_k)
    turns = -(-active // top_k)  # so many tokens take the active experts in turn, so that none is left out
    chosen[:turns] = torch.arange(turns * top_k, device=device).view(turns, top_k) % active
    names = torch.randperm(experts, device=device)[:active]
    return names[chosen[torch.randperm(tokens, device=device)]].int()
