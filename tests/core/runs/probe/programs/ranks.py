"""DistributedDataParallel on two ranks over gloo, one process each."""

import json
import os
import subprocess
import sys
import tempfile
import threading

import torch
import torch.distributed as dist
from loop import Change, Told, gradients, mse, net
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_


def work(rank):
    """Train, with other batches on each rank and the mean of their gradients."""
    told = Told(f"rank_{rank}")
    told.fields["tid"] = threading.get_native_id()
    torch.manual_seed(0)
    inner = net()
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told.record("model", root="Sequential", parameters=26)
    told.record("optimizer", orphaned=0, tensors=4)
    for n in range(3):
        optimizer.zero_grad()
        torch.manual_seed(100 * n + rank)
        loss = mse(model, torch.randn(4 + rank, 3), torch.randn(4 + rank, 2))
        if n == 2:  # reductions by hand, of a metric and then of a gradient
            loss.backward()
            dist.all_reduce(inner[0].weight.grad)
            before = gradients(inner.parameters())
        else:
            loss.backward()
            before = gradients(inner.parameters())
            clip_grad_norm_(model.parameters(), 0.1)
        after, change = gradients(inner.parameters()), Change(inner.parameters())
        optimizer.step()
        fields = change.done()
        metric = loss.detach().clone()
        dist.all_reduce(metric)
        told.step(
            loss=loss.item(), samples=4 + rank, rank=rank, grad_norm=before, grad_norm_after=after,
            signature="B R S" if n == 2 else "B C(0.1) S Z", always=[] if n == 2 else ["grad_norm"], **fields
        )  # fmt: skip
    told.say()
    dist.barrier()


if len(sys.argv) < 2:
    with tempfile.TemporaryDirectory() as place:
        children = [
            subprocess.Popen(
                [sys.executable, __file__, place], env=dict(os.environ, RANK=str(rank)), text=True
            )
            for rank in range(2)
        ]
        codes = [child.wait(timeout=120) for child in children]
    print("codes", json.dumps(codes))
    sys.exit(any(codes))
os.environ["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
dist.init_process_group(
    "gloo", init_method=f"file://{sys.argv[1]}/meet", rank=int(os.environ["RANK"]), world_size=2
)
work(int(os.environ["RANK"]))
dist.destroy_process_group()
