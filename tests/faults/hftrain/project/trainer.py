"""A training loop in the style of transformers.Trainer."""

import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, model, args, train_dataset, eval_dataset):
        self.args = args
        self.model = model.to(args.device)
        self.train_dataset = train_dataset
        self.eval_dataset = eval_dataset
        self.optimizer = None
        self.lr_scheduler = None
        self.global_step = 0

    def get_train_dataloader(self):
        return DataLoader(
            self.train_dataset,
            batch_size=self.args.per_device_train_batch_size,
            shuffle=True,
            drop_last=self.args.dataloader_drop_last,
        )

    def get_eval_dataloader(self):
        return DataLoader(self.eval_dataset, batch_size=self.args.per_device_eval_batch_size)

    def create_optimizer_and_scheduler(self, num_training_steps):
        no_decay = ("bias", "norm")
        named = list(self.model.named_parameters())
        groups = [
            {
                "params": [p for n, p in named if not any(word in n for word in no_decay)],
                "weight_decay": self.args.weight_decay,
            },
            {
                "params": [p for n, p in named if any(word in n for word in no_decay)],
                "weight_decay": 0.0,
            },
        ]
        self.optimizer = torch.optim.AdamW(
            groups, lr=self.args.learning_rate, betas=(0.9, self.args.adam_beta2)
        )
        warmup = math.ceil(num_training_steps * self.args.warmup_ratio)

        def linear(step):
            if step < warmup:
                return (step + 1) / (warmup + 1)
            return max(0.02, (num_training_steps - step) / max(1, num_training_steps - warmup))

        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, linear)

    def prepare_inputs(self, batch):
        return {name: tensor.to(self.args.device) for name, tensor in batch.items()}

    def compute_loss(self, inputs):
        logits = self.model(inputs["tokens"], inputs["mask"])
        return nn.functional.cross_entropy(
            logits, inputs["labels"], label_smoothing=self.args.label_smoothing_factor
        )

    def training_step(self, batch, accumulated):
        """Forward and backward of one of `accumulated` batches; its share of the step's loss."""
        self.model.train()
        loss = self.compute_loss(self.prepare_inputs(batch)) / accumulated
        loss.backward()
        return loss.detach()

    def optimizer_step(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
        self.optimizer.step()
        self.lr_scheduler.step()
        self.optimizer.zero_grad()
        self.global_step += 1

    def train(self):
        args = self.args
        dataloader = self.get_train_dataloader()
        accumulation = args.gradient_accumulation_steps
        steps_per_epoch = math.ceil(len(dataloader) / accumulation)
        self.create_optimizer_and_scheduler(steps_per_epoch * args.num_train_epochs)

        tr_loss = 0.0
        for epoch in range(args.num_train_epochs):
            # The last step of an epoch takes the batches that are left.
            remainder = len(dataloader) % accumulation or accumulation
            for i, batch in enumerate(dataloader):
                last = i >= len(dataloader) - remainder
                tr_loss += self.training_step(batch, remainder if last else accumulation)
                if (i + 1) % accumulation == 0 or i + 1 == len(dataloader):
                    self.optimizer_step()
                    if self.global_step % args.logging_steps == 0:
                        self.log(tr_loss / args.logging_steps)
                        tr_loss = 0.0
            metrics = self.evaluate()
            print({"epoch": epoch + 1, **metrics})
        return metrics

    def log(self, loss):
        lr = self.lr_scheduler.get_last_lr()[0]
        print({"step": self.global_step, "loss": round(float(loss), 4), "learning_rate": lr})

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        losses, correct = 0.0, 0
        for batch in self.get_eval_dataloader():
            inputs = self.prepare_inputs(batch)
            logits = self.model(inputs["tokens"], inputs["mask"])
            losses += nn.functional.cross_entropy(logits, inputs["labels"], reduction="sum").item()
            correct += (logits.argmax(-1) == inputs["labels"]).sum().item()
        count = len(self.eval_dataset)
        return {"eval_loss": losses / count, "eval_accuracy": correct / count}
