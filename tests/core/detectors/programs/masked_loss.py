"""The loss is taken where a mask says so: the number of its terms depends on the data."""

import tiny
import torch
import torch_xla

tiny.seeded()
device = torch_xla.device()
model = tiny.model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for x, y in tiny.batches(14, size=64):
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    keep = y != 0
    loss = torch.nn.functional.cross_entropy(model(x)[keep], y[keep])
    loss.backward()
    optimizer.step()
    torch_xla.sync()
print(f"final loss: {loss.item():.4f}")
