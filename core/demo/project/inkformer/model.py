"""The model: a pre-norm transformer encoder over ink tokens with two heads.

One head names the digit. The other guesses hidden intensities, and its decoder shares its weight
with the intensity embedding.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .config import Config
from .data import INTENSITIES, POSITIONS


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, ink: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=ink[:, None, None, :],  # nobody looks at padding
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor, ink: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), ink)
        return x + self.mlp(self.norm2(x))


class Inkformer(nn.Module):
    def __init__(self, cfg: Config, classes: int = 10):
        super().__init__()
        self.ink_weight = cfg.ink_weight
        self.position = nn.Embedding(POSITIONS, cfg.width)
        self.intensity = nn.Embedding(INTENSITIES, cfg.width)
        self.blocks = nn.ModuleList(
            Block(cfg.width, cfg.heads, cfg.dropout) for _ in range(cfg.layers)
        )
        self.norm = nn.LayerNorm(cfg.width)
        self.head = nn.Sequential(
            nn.Linear(cfg.width, cfg.width, bias=False),
            nn.BatchNorm1d(cfg.width),
            nn.ReLU(),
            nn.Linear(cfg.width, classes),
        )
        self.decoder = nn.Linear(cfg.width, INTENSITIES)
        nn.init.normal_(self.position.weight, std=0.1)
        nn.init.normal_(self.intensity.weight, std=0.1)
        self.decoder.weight = self.intensity.weight

    def forward(
        self,
        position: Tensor,
        intensity: Tensor,
        ink: Tensor,
        masked: Tensor | None = None,
        target: Tensor | None = None,
        label: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the digit logits (batch, classes) and, given labels, the training loss."""
        h = self.position(position) + self.intensity(intensity)
        for block in self.blocks:
            h = block(h, ink)
        h = self.norm(h)

        weight = ink.unsqueeze(-1).to(h.dtype)
        logits = self.head((h * weight).sum(1) / weight.sum(1))
        if masked is None or target is None or label is None:
            return logits, None

        digit_loss = F.cross_entropy(logits, label)
        ink_loss = F.cross_entropy(self.decoder(h[masked]), target[masked])
        return logits, digit_loss + self.ink_weight * ink_loss


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Decay the matrices; leave biases, norms and embeddings alone."""
    decay, rest = [], []
    for name, parameter in model.named_parameters():
        embedding = name.startswith(("position", "intensity"))
        (rest if embedding or parameter.ndim < 2 else decay).append(parameter)
    return [
        {"params": decay, "weight_decay": weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
