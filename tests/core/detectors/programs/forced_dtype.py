"""A variable that older guides recommend: every float32 tensor is a bfloat16 one on the device."""

import os

os.environ["XLA_USE_BF16"] = "1"

import tiny
import torch
import torch_xla

tiny.seeded()
device = torch_xla.device()
model = tiny.model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for x, y in tiny.batches(14):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    loss.backward()
    optimizer.step()
    torch_xla.sync()
print(f"final loss: {loss.item():.4f}")
