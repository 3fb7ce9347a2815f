"""Hyperparameters of a training run, read from a JSON file."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass
class Config:
    width: int = 64
    heads: int = 4
    layers: int = 1
    dropout: float = 0.0
    mask_rate: float = 0.15  # share of the ink tokens hidden from the model in training
    ink_weight: float = 0.5  # weight of the masked-ink loss beside the digit loss
    epochs: int = 7
    batch_size: int = 32
    eval_batch_size: int = 60
    lr: float = 3e-3
    weight_decay: float = 0.05
    warmup_steps: int = 40
    clip_norm: float = 1.0
    log_every: int = 10
    seed: int = 7


def load_config(path: str | Path) -> Config:
    values = json.loads(Path(path).read_text())
    unknown = set(values) - {field.name for field in fields(Config)}
    if unknown:
        raise ValueError(f"{path}: unknown settings {sorted(unknown)}")
    return Config(**values)
