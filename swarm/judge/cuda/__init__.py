"""The judge on NVIDIA GPUs. Only modules that touch a GPU import CUDA's bindings, and only when they do."""
