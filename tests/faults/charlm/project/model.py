"""A small GPT: pre-norm blocks, learned positions, output tied to the embedding."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, allowed):
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, -1).transpose(1, 2)
            for t in self.qkv(x).split(width, dim=2)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        scores = scores.masked_fill(~allowed[:, None], -1e4)
        weights = self.dropout(F.softmax(scores, dim=-1))
        return self.proj((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x, allowed):
        x = x + self.attention(self.norm1(x), allowed)
        return x + self.mlp(self.norm2(x))


class CharLM(nn.Module):
    def __init__(self, vocab, block, width=32, heads=4, depth=1, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(block, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.apply(self._init)
        self.head.weight = self.embedding.weight
        self.register_buffer("causal", torch.ones(block, block).tril().bool(), persistent=False)

    def _init(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.05)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, ids, mask):
        positions = (mask.long().cumsum(1) - 1).clamp(min=0)
        x = self.dropout(self.embedding(ids) + self.positions(positions))
        allowed = self.causal & mask[:, None, :]
        for block in self.blocks:
            x = block(x, allowed)
        return self.head(self.norm(x))


def parameter_groups(model, weight_decay):
    """Matrices decay; biases, norms and embeddings don't."""
    decay, no_decay = [], []
    for name, parameter in model.named_parameters():
        plain = parameter.ndim >= 2 and "embedding" not in name and "positions" not in name
        (decay if plain else no_decay).append(parameter)
    return [
        {"params": decay, "weight_decay": weight_decay},
        {"params": no_decay, "weight_decay": 0.0},
    ]
