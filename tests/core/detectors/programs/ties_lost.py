"""The output layer shares the embedding's weight until the move to the XLA device unties them.

``--device cpu`` is the reference: there they stay tied, and torch_xla is not imported.
"""

import sys

import tiny
import torch

tiny.seeded()
on_xla = "cpu" not in sys.argv
if on_xla:
    import torch_xla

    device = torch_xla.device()
else:
    device = torch.device("cpu")


class TiedModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(16, 8)
        self.out = torch.nn.Linear(8, 16, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(self.embed(tokens))


model = TiedModel().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(12):
    tokens = torch.randint(16, (4, 7))
    inputs, labels = tokens[:, :-1].to(device), tokens[:, 1:].to(device)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), labels.flatten())
    loss.backward()
    optimizer.step()
    if on_xla:
        torch_xla.sync()
print(f"final loss: {loss.item():.4f}")
