"""Mixed precision as it was for CUDA: an autocast that does nothing here, and a GradScaler."""

import tiny
import torch
import torch_xla

tiny.seeded()
device = torch_xla.device()
model = tiny.model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")

for x, y in tiny.batches(14):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    torch_xla.sync()
print(f"final loss: {loss.item():.4f}")
