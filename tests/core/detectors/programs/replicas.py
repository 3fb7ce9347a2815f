"""Two ranks on the host under torchrun: DistributedDataParallel with a DistributedSampler.

``same`` leaves the sampler out, so that both ranks train on the same batches. ``unreduced`` leaves
DistributedDataParallel out, so that each rank trains a model of its own. ``early`` clips on each
rank and averages the gradients by hand behind that.
"""

import sys

import tiny
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

kind = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
tiny.seeded()
model = tiny.model()
if kind in ("", "same"):
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(160, tiny.FEATURES)
data = TensorDataset(x, x[:, : tiny.CLASSES].argmax(1))
sampler = None if kind == "same" else DistributedSampler(data, seed=1)
loader = DataLoader(data, batch_size=4, sampler=sampler)

for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    if kind == "early":
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
    elif kind == "":
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
dist.destroy_process_group()
