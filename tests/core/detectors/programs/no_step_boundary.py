"""Nothing ends the graph of a step: it goes on growing until the loss is read after the loop."""

import tiny
import torch
import torch_xla

tiny.seeded()
device = torch_xla.device()
model = tiny.model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for x, y in tiny.batches(12):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    loss.backward()
    optimizer.step()
print(f"final loss: {loss.item():.4f}")
