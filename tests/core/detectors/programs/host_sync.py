"""The loss is read for the progress line of each step."""

import tiny
import torch
import torch_xla

tiny.seeded()
device = torch_xla.device()
model = tiny.model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def report(step, loss):
    print(f"step {step} loss {loss.item():.4f}")


for step, (x, y) in enumerate(tiny.batches(16)):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    report(step, loss)
