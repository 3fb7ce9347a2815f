"""A faithful run that trains a temperature beside its model, as contrastive losses do.

The rate starts at 0 and warms up, and one evaluation of ten batches is read batch by batch.
"""

import tiny
import torch
import torch_xla

tiny.seeded()
device = torch_xla.device()
model = tiny.model().to(device)
temperature = torch.nn.Parameter(torch.ones((), device=device))
optimizer = torch.optim.AdamW([*model.parameters(), temperature], lr=0.01)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 5, 1.0))

for step, (x, y) in enumerate(tiny.batches(40), 1):
    model.train()
    optimizer.zero_grad()
    logits = model(x.to(device)) * temperature
    loss = torch.nn.functional.cross_entropy(logits, y.to(device))
    loss.backward()
    optimizer.step()
    schedule.step()
    torch_xla.sync()
    if step % 10 == 0:
        model.eval()
        right = 0
        for x, y in tiny.batches(10):
            with torch.no_grad():
                right += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
        print(f"step {step} accuracy {right / 40:.3f}")
