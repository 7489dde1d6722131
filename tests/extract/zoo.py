"""Small models with random weights, as their authors would write them; the extraction reads this file."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

HIDDEN, TOKENS = 64, 32


class RMSNorm(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Attention(nn.Module):
    """Grouped queries: four heads on two."""

    heads, kv_heads, head_dim = 4, 2, 16

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(HIDDEN, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(HIDDEN, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        shape = (*x.shape[:2], -1, self.head_dim)
        q = self.q_proj(x).view(shape).transpose(1, 2)
        k = self.k_proj(x).view(shape).transpose(1, 2)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(x.shape))


class MLP(nn.Module):
    def __init__(self, wide: int = 160) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, wide, bias=False)
        self.up_proj = nn.Linear(HIDDEN, wide, bias=False)
        self.down_proj = nn.Linear(wide, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(HIDDEN), RMSNorm(HIDDEN)
        self.self_attn, self.mlp = Attention(), MLP()

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Layers as in Llama, without embedding and head."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(LlamaLayer() for _ in range(layers))
        half = torch.arange(0, Attention.head_dim, 2) / Attention.head_dim
        self.register_buffer("inv_freq", 10000.0**-half)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(x.shape[1], device=x.device)[:, None] * self.inv_freq
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return x


class Residual(nn.Module):
    """ResNet's basic block."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


class MoE(nn.Module):
    """Two of four experts a token; all are computed, and weighed."""

    def __init__(self, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(HIDDEN, experts, bias=False)
        self.experts = nn.ModuleList(MLP(96) for _ in range(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.router(x).softmax(-1)
        best, chosen = scores.topk(2, dim=-1)
        weights = torch.zeros_like(scores).scatter(-1, chosen, best / best.sum(-1, keepdim=True))
        return sum(weights[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))


class SpeltOut(nn.Module):
    """Attention by products and a softmax, with the mask that nanoGPT keeps in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril())

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-1, -2) * 0.25
        return scores.masked_fill(~self.mask, float("-inf")).softmax(-1) @ v


class Sparse(nn.Module):
    """Its Python looks at values, so it cannot be exported; the part that it calls can."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) if float(x.abs().max()) > 0 else x


class Strange(nn.Module):
    """What no problem can be made of."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(HIDDEN)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        dropped = F.dropout(x, 0.5, training=True)
        chosen = x[x > 0]
        return dropped, chosen.cos(), torch.fft.rfft(x), self.norm(x[0])


class Zoo(nn.Module):
    """All of them, so that one process has to load torch."""

    def __init__(self) -> None:
        super().__init__()
        self.llama, self.resnet, self.moe = Llama().eval(), Residual().eval(), MoE().eval()
        self.sparse = Sparse()

    def forward(self, tokens: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.sparse(self.llama(tokens))
        return self.moe(x), self.resnet(image)


def build() -> nn.Module:
    torch.manual_seed(0)
    return Zoo()


def example() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, TOKENS, HIDDEN, generator=generator), torch.randn(
        2, 16, 12, 12, generator=generator
    )
