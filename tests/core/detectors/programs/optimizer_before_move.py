"""The optimizer holds the parameters that the model had before it was moved."""

import tiny
import torch
import torch_xla

tiny.seeded()
device = torch_xla.device()
model = tiny.model()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
model = model.to(device)
(x, y) = next(tiny.batches(1))
x, y = x.to(device), y.to(device)

for step in range(14):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.4f}")
