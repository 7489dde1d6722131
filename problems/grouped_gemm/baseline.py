"""torch's grouped product, which reads where an expert's rows end from device memory."""

from torch.nn.functional import grouped_mm


def run(x, weight, ends):
    return grouped_mm(x, weight.transpose(1, 2), offs=ends)
