"""Each batch is padded to its own longest sample, so each step has a shape of its own."""

import tiny
import torch
import torch_xla

tiny.seeded()
device = torch_xla.device()
embed = torch.nn.Embedding(16, tiny.CLASSES).to(device)
optimizer = torch.optim.SGD(embed.parameters(), lr=0.1)

for step in range(12):
    longest = 3 + step
    tokens = torch.randint(16, (tiny.BATCH, longest)).to(device)
    labels = torch.randint(tiny.CLASSES, (tiny.BATCH,)).to(device)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(embed(tokens).mean(1), labels)
    loss.backward()
    optimizer.step()
    torch_xla.sync()
print(f"final loss: {loss.item():.4f}")
