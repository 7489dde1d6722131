from torch.nn.functional import conv2d, relu


def convolve(x, weight, bias):
    """Convolve images whose channels come last; their size stays."""
    x, weight = x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2)
    return conv2d(x, weight, bias, padding="same").permute(0, 2, 3, 1)


def run(x, w1, b1, w2, b2, w3, b3):
    inner = relu(convolve(x, w1[:, None, None], b1))
    inner = relu(convolve(inner, w2, b2))
    return relu(x + convolve(inner, w3[:, None, None], b3))
