"""A faithful loop on whatever device the runtime gives: started without PJRT_DEVICE, the host."""

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
    torch_xla.sync()
print(f"final loss: {loss.item():.4f} on {device}")
