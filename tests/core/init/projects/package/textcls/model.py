import torch.nn as nn


class Classifier(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.out = nn.Linear(dim, 2)

    def forward(self, words):
        mask = (words != 0).unsqueeze(-1)
        hidden = (self.embed(words) * mask).sum(1) / mask.sum(1)
        return self.out(hidden)
