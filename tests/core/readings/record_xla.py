"""Prints what ``recorded/`` holds: XLA's own signals from a tiny program on PJRT CPU.

    PJRT_DEVICE=CPU PT_XLA_DEBUG_LEVEL=2 PT_XLA_DEBUG_FILE=debug_level_2.txt \\
        XLA_METRICS_FILE=metrics_file.txt python tests/core/readings/record_xla.py 3 > report.txt
    PJRT_DEVICE=CPU PT_XLA_DEBUG=1 python tests/core/readings/record_xla.py 13 2> debug.txt
    PJRT_DEVICE=CPU python tests/core/readings/record_xla.py data > report_and_data.txt

Recorded with torch 2.9.1 and torch_xla 2.9.0; paths were replaced afterwards, ``metrics_file.txt``
was cut after its second step and ``debug.txt`` in its middle. Not a test: the tests read the files.
"""

from __future__ import annotations

import sys

import torch
import torch_xla
import torch_xla.debug.metrics as met


def steps(count: int) -> None:
    """A program with a fault of each kind that torch_xla names by itself: another shape in every
    step, a value read in every step, an operator that is not lowered."""
    torch.manual_seed(0)
    device = torch_xla.device()
    model = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(count):
        x = torch.randn(2 + i, 4, device=device)
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        print("step", i, "loss", loss.item(), flush=True)
        torch.nonzero(torch.ones(3, device=device))
    print(met.metrics_report(), flush=True)
    print("SHORT")
    print(met.short_metrics_report(), flush=True)


def data() -> None:
    """The numbers behind a report, in nanoseconds and bytes, and the report itself."""
    device = torch_xla.device()
    x = torch.randn(64, 64, device=device)
    for i in range(6):
        x = (x @ x).tanh() + i
        torch_xla.sync()
    x.sum().item()
    for name in met.metric_names():
        found = met.metric_data(name)
        if found and found[0]:
            print("DATA", name, found[0], repr(found[1]), [s[1] for s in found[2]][:3])
    print(met.metrics_report())


if __name__ == "__main__":
    data() if sys.argv[1] == "data" else steps(int(sys.argv[1]))
