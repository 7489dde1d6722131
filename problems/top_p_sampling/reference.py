import torch


def run(logits, top_p, u):
    ranked, token = torch.sort(logits, dim=-1, descending=True, stable=True)
    probability = torch.softmax(ranked, dim=-1)
    before = probability.cumsum(-1) - probability
    nucleus = torch.where(before < top_p[:, None], probability, 0)
    nucleus = torch.zeros_like(nucleus).scatter(1, token, nucleus)
    running = nucleus.cumsum(-1)
    mass = running[:, -1:]
    sampled = torch.searchsorted(running, u[:, None] * mass)
    logprob = (nucleus.gather(1, sampled) / mass).log()
    return sampled[:, 0], logprob[:, 0]


def make_inputs(axes, device):
    """Draw logits, and numbers that fall into the middle of a token's share: no rounding decides."""
    batch, vocabulary = axes["batch"], axes["vocabulary"]
    logits = 4 * torch.randn(batch, vocabulary, device=device)
    ranked, token = torch.sort(logits.double(), dim=-1, descending=True, stable=True)
    probability = torch.softmax(ranked, dim=-1)
    running = probability.cumsum(-1)
    mass = 0.5 + 0.45 * torch.rand(batch, 1, dtype=torch.float64, device=device)
    last = torch.searchsorted(running, mass)
    top_p = (running - probability / 2).gather(1, last)
    nucleus = torch.where(running <= running.gather(1, last), probability, 0)
    nucleus = torch.zeros_like(nucleus).scatter(1, token, nucleus)
    running = nucleus.cumsum(-1)
    sampled = torch.searchsorted(running, running[:, -1:] * torch.rand_like(mass))
    u = (running - nucleus / 2).gather(1, sampled) / running[:, -1:]
    return {"logits": logits, "top_p": top_p[:, 0].float(), "u": u[:, 0].float()}
