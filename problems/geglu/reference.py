from torch.nn.functional import gelu


def run(gate_up):
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (gelu(gate, approximate="tanh") * up).to(gate_up.dtype)
