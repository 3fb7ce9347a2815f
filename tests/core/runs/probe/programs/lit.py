# ruff: noqa: E402
"""Lightning: automatic and manual optimization."""

import sys

sys.modules["torch_xla"] = None  # where it is installed these libraries train on its devices

import logging
import threading
import warnings

import lightning
import torch
from loop import Change, Told, batch, gradients, net
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(0)
x, y = batch(12)
MANUAL = sys.argv[1] == "manual"
told = Told("main")
told.fields["tid"] = threading.get_native_id()


class Automatic(lightning.LightningModule):
    """Closures, accumulation and clipping are Lightning's."""

    def __init__(self):
        super().__init__()
        self.net = net()
        self.losses = []

    def training_step(self, rows, index):
        inputs, targets = rows
        loss = (self.net(inputs) - targets).pow(2).mean()
        self.losses.append(loss.item() / 2)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, **options):
        self.before = gradients(self.parameters())
        self.clip_gradients(optimizer, gradient_clip_val=gradient_clip_val, **options)
        self.after, self.change = gradients(self.parameters()), Change(self.parameters())

    def on_train_batch_end(self, outputs, rows, index):
        if index % 2 == 1:
            told.step(
                loss=sum(self.losses), losses=self.losses, backwards=2, closures=1, samples=6,
                grad_norm=self.before, grad_norm_after=self.after, always=["grad_norm"],
                optimizer="SGD", loss_source="backward", **self.change.done()
            )  # fmt: skip
            self.losses = []

    def validation_step(self, rows, index):
        self.net(rows[0])


class Manual(lightning.LightningModule):
    """Two optimizers, stepped by hand."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.first, self.second = net(), net()

    def training_step(self, rows, index):
        inputs, targets = rows
        for part, optimizer in ((self.first, 0), (self.second, 1)):
            wrapped = self.optimizers()[optimizer]
            wrapped.zero_grad()
            loss = (part(inputs) - targets).pow(2).mean()
            self.manual_backward(loss)
            before = gradients(part.parameters())
            self.clip_gradients(wrapped, gradient_clip_val=0.1, gradient_clip_algorithm="norm")
            after, change = gradients(part.parameters()), Change(part.parameters())
            wrapped.step()
            told.step(
                loss=loss.item(), backwards=1, closures=1, samples=3,
                grad_norm=before, grad_norm_after=after, optimizer_id=optimizer + 1,
                optimizer_n=index + 1, always=["grad_norm"], **change.done()
            )  # fmt: skip

    def configure_optimizers(self):
        return (
            torch.optim.SGD(self.first.parameters(), lr=0.1),
            torch.optim.SGD(self.second.parameters(), lr=0.1),
        )


trainer = lightning.Trainer(
    max_epochs=1,
    accelerator="cpu",
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=1,
    **({} if MANUAL else {"accumulate_grad_batches": 2, "gradient_clip_val": 0.1}),
)
loader = DataLoader(TensorDataset(x, y), batch_size=3)
for name in ("optimizer",):
    for _ in range(1 + MANUAL):
        told.record(name, orphaned=0, tensors=4)
module = Manual() if MANUAL else Automatic()
trainer.fit(module, loader, *([] if MANUAL else [loader]))
told.say()
