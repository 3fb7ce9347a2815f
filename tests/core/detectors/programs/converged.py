"""A faithful run to the end: the loss falls to a constant that the arithmetic can't leave.

``torch_xla.step()`` ends each step. The first ten losses are printed, then every tenth.
"""

import tiny
import torch
import torch_xla

tiny.seeded()
device = torch_xla.device()
model = torch.nn.Linear(tiny.FEATURES, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
x = torch.randn(32, tiny.FEATURES)
x, y = x.to(device), (x.sum(1, keepdim=True) + 0.5).to(device)

for step in range(300):
    with torch_xla.step():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    if step < 10 or step % 10 == 0:
        print(f"step {step} loss {loss.item():.3g}")
