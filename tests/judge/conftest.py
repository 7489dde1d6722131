"""The judge runs torch on its device's cores alone; so do its tests, which share this machine with others."""

import torch

torch.set_num_threads(1)
