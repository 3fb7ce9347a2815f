"""Prints what ``recorded/`` holds of training libraries: tiny trainings of one linear layer.

    USE_TORCH_XLA=0 python tests/core/readings/record_libraries.py {transformers,lightning,rich,tqdm}

Recorded with transformers 5.24.0, lightning 2.6.6, tqdm 4.70.1 and rich 15.0.0. Afterwards every
overwritten part of a line was put on a line of its own, escape sequences were taken out and repeated
parts left out. Not a test: the tests read the files.
"""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """64 samples of two classes that a line divides."""
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    return x, (x.sum(1) > 0).long()


def with_transformers() -> None:
    """``Trainer`` with an evaluation after each epoch, and its summaries."""
    from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

    class Net(PreTrainedModel):
        config_class = PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.lin = nn.Linear(4, 2)
            self.post_init()

        def forward(self, x: Any = None, labels: Any = None) -> dict[str, Any]:
            logits = self.lin(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    class Samples(Dataset):
        def __init__(self) -> None:
            self.x, self.y = data()

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"x": self.x[i], "labels": self.y[i]}

    trainer = Trainer(
        Net(PretrainedConfig()),
        TrainingArguments(
            tempfile.mkdtemp(),
            per_device_train_batch_size=8,
            num_train_epochs=2,
            logging_steps=4,
            eval_strategy="epoch",
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            optim="adamw_torch",
        ),
        train_dataset=Samples(),
        eval_dataset=Samples(),
        compute_metrics=lambda p: {
            "accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())
        },
    )
    trainer.log_metrics("train", trainer.train().metrics)
    trainer.log_metrics("eval", trainer.evaluate())


def with_lightning(rich: bool) -> None:
    """``fit``, and ``validate`` with one and with two loaders."""
    import lightning as pl
    from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(4, 2)

        def training_step(self, batch: Any, i: int) -> Any:
            loss = nn.functional.cross_entropy(self.lin(batch[0]), batch[1])
            self.log("train_loss", loss, prog_bar=True)
            return loss

        def validation_step(self, batch: Any, i: int, dataloader_idx: int = 0) -> None:
            out = self.lin(batch[0])
            self.log("val_acc", (out.argmax(-1) == batch[1]).float().mean(), prog_bar=True)
            self.log("val_loss", nn.functional.cross_entropy(out, batch[1]))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loader = DataLoader(TensorDataset(*data()), batch_size=8)
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        callbacks=[RichProgressBar(4) if rich else TQDMProgressBar(4)],
        log_every_n_steps=4,
    )
    module = Module()
    trainer.fit(module, loader, loader)
    print(trainer.validate(module, loader))
    print(trainer.validate(module, [loader, loader]))


def with_tqdm() -> None:
    """A bar with a postfix, one without, and one of loading data."""
    from tqdm import tqdm

    bar = tqdm(range(6), desc="Epoch 1", mininterval=0)
    for i in bar:
        time.sleep(0.01)
        bar.set_postfix(loss=1 / (i + 1), acc=f"{10 * i}%")
    for desc in (None, "Loading data"):
        for _ in tqdm(range(3), mininterval=0, desc=desc):
            time.sleep(0.01)


if __name__ == "__main__":
    what = sys.argv[1]
    if what == "transformers":
        with_transformers()
    elif what == "tqdm":
        with_tqdm()
    else:
        with_lightning(what == "rich")
