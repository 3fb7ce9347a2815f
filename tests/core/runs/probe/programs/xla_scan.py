"""A GRU on an XLA device, evaluated on sequences of another length between two steps.

torch_xla repeats the cell with ``scan``, which traces it with a backward pass, once for each shape.
"""

import threading

import torch
import torch_xla
from loop import Told

told = Told("main")
told.fields["tid"] = threading.get_native_id()
torch.manual_seed(0)
device = torch_xla.device()
gru = torch.nn.GRU(3, 4, batch_first=True).to(device)
optimizer = torch.optim.SGD(gru.parameters(), lr=0.1)
for length in (5, 6):
    loss = gru(torch.randn(8, 5, 3).to(device))[0].square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch_xla.sync()
    gru.eval()
    with torch.no_grad():
        gru(torch.randn(7, length + 1, 3).to(device))
    torch_xla.sync()
    gru.train()
told.say()
