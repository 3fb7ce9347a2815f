"""A faithful migration with what real ones have.

Tied weights, tied again after the move and before the optimizer is made; bfloat16 autocast; two
batches a step; a smaller last batch; a schedule; clipping; MpDeviceLoader, which ends each step;
the loss read every tenth step, and an evaluation after each epoch.
"""

import tiny
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, TensorDataset

tiny.seeded()
device = torch_xla.device()


class TiedModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(16, 8)
        self.out = torch.nn.Linear(8, 16, bias=False)
        self.tie()

    def tie(self):
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(self.embed(tokens).tanh())


model = TiedModel().to(device)
model.tie()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=10)
tokens = torch.randint(16, (4 * 9 + 2, 7))
data = TensorDataset(tokens[:, :-1], tokens[:, 1:])
loader = pl.MpDeviceLoader(DataLoader(data, batch_size=4, drop_last=False), device)


def loss_of(inputs, labels):
    with torch.autocast("xla", dtype=torch.bfloat16):
        logits = model(inputs)
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


step = 0
for epoch in range(3):
    model.train()
    optimizer.zero_grad()
    for i, (inputs, labels) in enumerate(loader):
        loss = loss_of(inputs, labels) / 2
        loss.backward()
        if i % 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if step % 10 == 0:
                print(f"step {step} loss {2 * loss.item():.4f}")
    model.eval()
    total = torch.zeros((), device=device)
    with torch.no_grad():
        for inputs, labels in loader:
            total += loss_of(inputs, labels)
    print(f"epoch {epoch} evaluation loss {total.item() / len(loader):.4f}")
