"""LoRA (Hu et al. 2021): frozen linear layers plus a trained update of low rank."""

import math

import torch
import torch.nn as nn


class LoRALinear(nn.Module):
    def __init__(self, base, rank, alpha, dropout):
        super().__init__()
        self.base = base
        self.scaling = alpha / rank
        self.dropout = nn.Dropout(dropout)
        self.lora_A = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x):
        update = self.dropout(x) @ self.lora_A.t() @ self.lora_B.t()
        return self.base(x) + self.scaling * update


class Classifier(nn.Module):
    def __init__(self, encoder, classes):
        super().__init__()
        self.encoder = encoder
        self.score = nn.Linear(encoder.norm.normalized_shape[0], classes)

    def forward(self, ids):
        return self.score(self.encoder(ids))


def add_lora(model, targets=("query", "value", "up"), rank=4, alpha=16, dropout=0.05):
    """Freeze the encoder and put an adapter on each linear layer that `targets` names."""
    model.encoder.requires_grad_(False)
    for layer in model.encoder.layers:
        for name in targets:
            setattr(layer, name, LoRALinear(getattr(layer, name), rank, alpha, dropout))
    return model


def adapter_state_dict(model):
    """The trained part alone: adapters and the classification head."""
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if "lora_" in name or name.startswith("score.")
    }


def load_adapter(model, state):
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert not any("lora_" in name for name in missing), missing
