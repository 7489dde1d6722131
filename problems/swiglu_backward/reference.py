import torch


def run(grad_output, gate_up):
    grad = grad_output.float()
    gate, up = gate_up.float().chunk(2, dim=-1)
    share = torch.sigmoid(gate)
    grad_gate = grad * up * share * (1 + gate * (1 - share))
    grad_up = grad * gate * share
    return torch.cat((grad_gate, grad_up), dim=-1).to(gate_up.dtype)
