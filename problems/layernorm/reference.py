from torch.nn.functional import layer_norm


def run(hidden_states, weight, bias):
    return layer_norm(hidden_states, weight.shape, weight, bias, eps=1e-5)
