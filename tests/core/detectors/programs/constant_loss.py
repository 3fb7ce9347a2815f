"""A head with one class: its cross entropy is 0 whatever it answers; weight decay still acts."""

import tiny
import torch
import torch_xla

tiny.seeded()
device = torch_xla.device()
model = torch.nn.Sequential(torch.nn.Linear(tiny.FEATURES, 8), torch.nn.Tanh())
model.append(torch.nn.Linear(8, 1))
model = model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)

losses = []
for step, (x, _) in enumerate(tiny.batches(40), 1):
    labels = torch.zeros(len(x), dtype=torch.long, device=device)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), labels)
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    if step % 4 == 0:
        losses.append(loss.item())
print(f"final loss: {losses[-1]:.4f}")
