"""The base model: a text encoder whose weights are given and are never trained.

`load_base` stands for the download of a checkpoint: the weights are drawn from a generator of their
own, so they are the same in every process.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, WIDTH, LENGTH, PAD = 40, 32, 16, 0


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x, mask):
        y = self.norm1(x)
        bias = torch.zeros(mask.shape, dtype=y.dtype, device=y.device)
        bias = bias.masked_fill(~mask, torch.finfo(y.dtype).min)[:, None, :]
        x = x + F.scaled_dot_product_attention(
            self.query(y), self.key(y), self.value(y), attn_mask=bias
        )
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Layer(WIDTH) for _ in range(1))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids):
        mask = ids != PAD
        x = self.words(ids) + self.positions(torch.arange(LENGTH, device=ids.device))
        for layer in self.layers:
            x = layer(x, mask)
        x = self.norm(x) * mask[..., None]
        return x.sum(1) / mask.sum(1, keepdim=True)


def load_base():
    encoder = Encoder()
    generator = torch.Generator().manual_seed(2024)
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if "norm" in name:
                continue
            scale = 1.0 if parameter.ndim == 1 or "words" in name else WIDTH**-0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
            if name.endswith("bias"):
                parameter.mul_(0.1)
    return encoder
