"""Attention in bfloat16 whose mask adds the smallest float32: a row that is all padding is NaN."""

import tiny
import torch
import torch_xla

tiny.seeded()
device = torch_xla.device()
embed = torch.nn.Embedding(16, 8)
head = torch.nn.Linear(8, tiny.CLASSES)
model = torch.nn.ModuleDict({"embed": embed, "head": head}).to(device, torch.bfloat16)
model.forward = lambda tokens, keep: attend(model, tokens, keep)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def attend(model, tokens, keep):
    hidden = model["embed"](tokens)
    scores = hidden @ hidden.transpose(1, 2)
    mask = (1.0 - keep[:, None, :].to(scores.dtype)) * torch.finfo(torch.float32).min
    return model["head"](((scores + mask).softmax(-1) @ hidden).mean(1))


losses = []
for step in range(12):
    tokens = torch.randint(1, 16, (tiny.BATCH, 5))
    if step == 5:
        tokens[0] = 0  # an empty text
    labels = torch.randint(tiny.CLASSES, (tiny.BATCH,)).to(device)
    keep = (tokens != 0).to(device)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(tokens.to(device), keep), labels)
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    if step % 5 == 0:  # steps 1, 6 and 11
        losses.append(loss.item())
print(f"final loss: {loss.item():.4f}")
