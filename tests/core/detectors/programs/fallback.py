"""The median of the activations has no lowering in XLA: the host computes it in each step."""

import tiny
import torch
import torch_xla

tiny.seeded()
device = torch_xla.device()
model = tiny.model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for x, y in tiny.batches(14):
    optimizer.zero_grad()
    logits = model(x.to(device))
    loss = torch.nn.functional.cross_entropy(logits - logits.detach().median(), y.to(device))
    loss.backward()
    optimizer.step()
    torch_xla.sync()
print(f"final loss: {loss.item():.4f}")
