# ruff: noqa: E402
"""The Trainer of transformers on a tiny model of its own library, without a network."""

import sys

sys.modules["torch_xla"] = None  # where it is installed these libraries train on its devices

import threading

import torch
from loop import Change, Told, gradients
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

torch.manual_seed(0)
model = BertForSequenceClassification(
    BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=8, num_labels=2,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )
)  # fmt: skip
rows = [{"input_ids": torch.randint(0, 20, (5,)), "labels": torch.tensor(i % 2)} for i in range(12)]
told = Told("main")
told.fields["tid"] = threading.get_native_id()
told.record("optimizer", orphaned=0)
told.record("model", root="BertForSequenceClassification")
ACCUMULATED = 2


losses = []


def listen(accelerator):
    """Note what accelerate calls backward on: the loss over the batches it says it accumulates."""
    backward = accelerator.backward

    def noted(loss, **options):
        losses.append(loss.item() / accelerator.gradient_accumulation_steps)
        return backward(loss, **options)

    accelerator.backward = noted


class Watching(TrainerCallback):
    """Around the optimizer's step."""

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self.after = gradients(model.parameters())
        self.change = Change(p for p in model.parameters() if p.requires_grad)
        self.rate = trainer.optimizer.param_groups[0]["lr"]

    def on_optimizer_step(self, args, state, control, **kwargs):
        told.step(
            loss=sum(losses), losses=list(losses), backwards=ACCUMULATED, samples=4, grad_norm_after=self.after,
            lr=self.rate, optimizer="AdamW", signature="B B C(0.05) S L Z", **self.change.done()
        )  # fmt: skip
        del losses[:]


class Before(TrainerCallback):
    """The norm that the Trainer logs is of the gradients before clipping."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "grad_norm" in logs and told.fields["steps"]:
            told.fields["steps"][-1]["grad_norm"] = float(logs["grad_norm"])
            told.fields["steps"][-1]["always"] = ["grad_norm"]


options = {
    "output_dir": "out", "per_device_train_batch_size": 2, "num_train_epochs": 1,
    "gradient_accumulation_steps": ACCUMULATED, "max_grad_norm": 0.05, "logging_steps": 1,
    "report_to": [], "save_strategy": "no", "disable_tqdm": True, "learning_rate": 1e-2,
    "optim": "adamw_torch", "dataloader_pin_memory": False, "seed": 0,
}  # fmt: skip
options["use_cpu"] = True
if not hasattr(TrainerCallback, "on_pre_optimizer_step"):
    raise SystemExit("this transformers has no on_pre_optimizer_step")
trainer = Trainer(
    model=model,
    args=TrainingArguments(**options),
    train_dataset=rows,
    callbacks=[Watching(), Before()],
)
listen(trainer.accelerator)
trainer.train()
told.say()
