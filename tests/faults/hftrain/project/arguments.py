"""Settings of a training, in the style of transformers.TrainingArguments."""

import argparse
import dataclasses
from dataclasses import dataclass

import torch


@dataclass
class TrainingArguments:
    num_train_epochs: int = 5
    per_device_train_batch_size: int = 16
    per_device_eval_batch_size: int = 64
    gradient_accumulation_steps: int = 4
    learning_rate: float = 2e-2
    weight_decay: float = 0.05
    adam_beta2: float = 0.98
    max_grad_norm: float = 0.25
    warmup_ratio: float = 0.2
    label_smoothing_factor: float = 0.1
    logging_steps: int = 5
    dataloader_drop_last: bool = False
    seed: int = 42

    @property
    def device(self):
        return torch.device("cuda")

    @classmethod
    def parse(cls):
        parser = argparse.ArgumentParser()
        for field in dataclasses.fields(cls):
            if field.type is not bool:
                parser.add_argument(
                    "--" + field.name, type=type(field.default), default=field.default
                )
        return cls(**vars(parser.parse_args()))
