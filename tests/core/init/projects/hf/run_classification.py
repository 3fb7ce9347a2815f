"""Fine-tune a (randomly made, so that nothing is downloaded) BERT on a synthetic task."""

import logging
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)

logger = logging.getLogger(__name__)


@dataclass
class ModelArguments:
    hidden_size: int = field(default=32, metadata={"help": "Width of the encoder."})
    layers: int = field(default=1)


@dataclass
class DataArguments:
    train_size: int = field(default=320)
    max_length: int = field(default=12)


class Sequences(torch.utils.data.Dataset):
    def __init__(self, size, length, seed):
        rng = np.random.default_rng(seed)
        self.ids = rng.integers(5, 60, (size, length))
        self.labels = (self.ids < 30).sum(1) > length // 2

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        ids = torch.tensor(self.ids[index])
        return {"input_ids": ids, "labels": torch.tensor(int(self.labels[index]))}


def compute_metrics(prediction):
    right = np.argmax(prediction.predictions, axis=1) == prediction.label_ids
    return {"accuracy": float(right.mean())}


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    logging.basicConfig(level=logging.INFO)
    set_seed(training_args.seed)

    config = BertConfig(
        vocab_size=60,
        hidden_size=model_args.hidden_size,
        num_hidden_layers=model_args.layers,
        num_attention_heads=2,
        intermediate_size=64,
    )
    model = BertForSequenceClassification(config)
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=Sequences(data_args.train_size, data_args.max_length, 0),
        eval_dataset=Sequences(100, data_args.max_length, 1),
        compute_metrics=compute_metrics,
    )
    if training_args.do_train:
        result = trainer.train()
        trainer.save_model()
        trainer.log_metrics("train", result.metrics)
    if training_args.do_eval:
        logger.info("*** Evaluate ***")
        metrics = trainer.evaluate()
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    main()
