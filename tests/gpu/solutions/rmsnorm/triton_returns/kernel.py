"""RMSNorm of bf16 rows of 4096: one program a row. Returns its output, as many submissions do."""

import torch
import triton
import triton.language as tl

HIDDEN = 4096


@triton.jit
def rmsnorm(x, weight, y, hidden: tl.constexpr):
    columns = tl.arange(0, hidden)
    row = tl.program_id(0).to(tl.int64) * hidden
    held = tl.load(x + row + columns).to(tl.float32)
    gain = tl.load(weight + columns).to(tl.float32)
    scale = tl.rsqrt(tl.sum(held * held) / hidden + 1e-5)
    tl.store(y + row + columns, (held * scale * gain).to(y.dtype.element_ty))


def run(hidden_states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    output = torch.empty_like(hidden_states)
    if hidden_states.shape[0]:
        rmsnorm[(hidden_states.shape[0],)](hidden_states, weight, output, hidden=HIDDEN, num_warps=8)
    return output
