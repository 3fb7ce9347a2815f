"""Which of four topics is a text about: embeddings, masked attention pooling, two layers."""

import random

import torch
import torch.nn as nn
from torch.utils.data import Dataset

TOPICS, VOCAB, LENGTH = 4, 60, 20


class Topics(Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.rows = [self.draw(rng) for _ in range(count)]

    def draw(self, rng):
        label, length = rng.randrange(TOPICS), rng.randint(8, LENGTH)
        own = [w for w in range(1, VOCAB) if w % TOPICS == label]
        words = [
            rng.choice(own) if rng.random() < 0.4 else rng.randrange(1, VOCAB)
            for _ in range(length)
        ]
        padding = [0] * (LENGTH - length)
        return words + padding, [1] * length + padding, label

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        tokens, mask, label = self.rows[index]
        return {
            "tokens": torch.tensor(tokens),
            "mask": torch.tensor(mask, dtype=torch.bool),
            "labels": label,
        }


class TopicModel(nn.Module):
    def __init__(self, width=32, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, width)
        self.gate = nn.Linear(width, 1)
        self.hidden = nn.Linear(width, 2 * width)
        self.norm = nn.LayerNorm(2 * width)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(2 * width, TOPICS)

    def forward(self, tokens, mask):
        x = self.embedding(tokens)
        scores = self.gate(torch.tanh(x)).squeeze(-1)
        weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
        pooled = (weights[..., None] * x).sum(1)
        return self.classifier(self.dropout(self.norm(nn.functional.gelu(self.hidden(pooled)))))
