import torch

PAGE_SIZE = 16


def run(key, value, cu_seqlens, kv_indptr, kv_indices):
    sequence = torch.repeat_interleave(cu_seqlens.diff())
    place = torch.arange(len(key), device=key.device) - cu_seqlens[sequence]
    page = kv_indices[kv_indptr[sequence] + place // PAGE_SIZE]
    slots = page * PAGE_SIZE + place % PAGE_SIZE
    return paged(key, slots, len(kv_indices)), paged(value, slots, len(kv_indices))


def paged(new, slots, pages):
    cache = new.new_zeros(pages * PAGE_SIZE, *new.shape[1:])
    cache[slots] = new
    return cache.unflatten(0, (pages, PAGE_SIZE))


def make_inputs(axes, device):
    lengths = (torch.randperm(axes["batch_size"], device=device) + 1) * axes["step"]
    counts = (lengths + PAGE_SIZE - 1) // PAGE_SIZE
    shape = (axes["tokens"], axes["num_kv_heads"], axes["head_dim"])
    return {
        "key": torch.randn(shape, device=device, dtype=torch.bfloat16),
        "value": torch.randn(shape, device=device, dtype=torch.bfloat16),
        "cu_seqlens": starts(lengths),
        "kv_indptr": starts(counts),
        "kv_indices": torch.randperm(axes["num_pages"], device=device).int(),
    }


def starts(counts):
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
