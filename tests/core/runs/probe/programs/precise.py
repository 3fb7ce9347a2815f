"""Asks for half precision in each way that the probe knows, and says what it got.

precise.py CHECKPOINT
"""

import os
import sys

import torch

torch.set_float32_matmul_precision("high")
torch.set_default_dtype(torch.bfloat16)
got = [torch.get_default_dtype()]
torch.set_default_dtype(torch.float32)

x = torch.ones(3, 4)
got += [x.half().dtype, x.bfloat16().dtype, x.to(torch.bfloat16).dtype]
got += [x.to("cpu", dtype=torch.float16).dtype, x.type(torch.HalfTensor).dtype]
got += [x.type("torch.BFloat16Tensor").dtype, torch.zeros(2, dtype=torch.float16).dtype]
got += [x.to(torch.float64).dtype, x.long().half().dtype]


def layer():
    return torch.nn.Linear(4, 4)


got += [layer().half().weight.dtype, layer().bfloat16().weight.dtype]
got += [layer().to(torch.bfloat16).weight.dtype, layer().type(torch.float16).weight.dtype]
moved = layer().to("meta", torch.bfloat16)
got += [moved.weight.dtype, moved.weight.device.type]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4, dtype=torch.bfloat16)  # the dtype of a parameter
        self.relu, self.last = torch.nn.ReLU(), torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.relu(self.first(x)))


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


@torch.autocast("cpu", dtype=torch.bfloat16)
def decorated(x):
    return net(x)


for _ in range(3):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inner = net(x)
        with torch.autocast("cpu", enabled=False):
            pass
    got.append(inner.dtype)
    optimizer.zero_grad()
    (inner + decorated(x)).float().sum().backward()
    optimizer.step()
got.append(net.first.weight.dtype)
if len(sys.argv) > 1:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=8, n_positions=8, n_embd=8, n_layer=1, n_head=1)
    GPT2LMHeadModel(config).to(dtype=torch.bfloat16).save_pretrained(sys.argv[1] + "/half")
    for dtype in (torch.bfloat16, "auto"):
        model = GPT2LMHeadModel.from_pretrained(sys.argv[1] + "/half", dtype=dtype)
        got.append({p.dtype for p in model.parameters()}.pop())
print(*(str(word).replace("torch.", "") for word in got))
print(os.environ.get("XLA_USE_BF16"))
