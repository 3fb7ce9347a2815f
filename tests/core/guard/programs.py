"""The program that the cases change, and its faithful migration."""

TRAIN = '''\
"""Train a classifier."""
import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Subset
from torchvision import transforms

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--max-length", type=int, default=128)
parser.add_argument("--dropout", type=float, default=0.1)
args = parser.parse_args()
ACCUMULATION = 4
os.environ["MODEL_HOME"] = "models"
device = torch.device("cuda")


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(100, width)
        self.body = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=1e-5)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(width, 100, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.body.weight, std=0.02)

    def forward(self, x, attention_mask=None):
        h = self.embed(x)
        h = h.masked_fill(attention_mask == 0, 0.0)
        h = self.drop(self.norm(F.relu(self.body(h))))
        return self.head(h.float())


class Texts(torch.utils.data.Dataset):
    def __getitem__(self, index):
        return self.rows[index] * 2 + 1


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def make_loaders(train_data, val_data, tokenizer, texts):
    augment = transforms.Compose([transforms.RandomHorizontalFlip(0.5), transforms.ToTensor()])
    encoded = tokenizer(texts, padding="max_length", truncation=True, max_length=args.max_length)
    encoded["labels"][encoded["labels"] == 0] = -100
    train_set = Subset(train_data, range(5000))
    sampler = torch.utils.data.DistributedSampler(train_set, shuffle=True)
    train_loader = DataLoader(
        train_set, batch_size=args.batch_size, sampler=sampler, drop_last=True, num_workers=4
    )
    plain_loader = DataLoader(train_data[:5000], args.batch_size, shuffle=True)
    val_loader = DataLoader(val_data, batch_size=64, shuffle=False)
    return train_loader, plain_loader, val_loader, sampler, augment


def evaluate(model, loader):
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for x, y in loader:
            x, y = x.cuda(), y.cuda()
            pred = model(x).argmax(dim=-1)
            correct += (pred == y).sum().item()
            total += y.numel()
    return correct / total


def train(model, train_loader, val_loader, sampler):
    for p in model.embed.parameters():
        p.requires_grad = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, betas=(0.9, 0.98))
    optimizer.add_param_group({"params": model.extra.parameters(), "lr": 1e-4})
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(args.epochs):
        model.train()
        sampler.set_epoch(epoch)
        for step, (x, y) in enumerate(train_loader):
            x = x.cuda()
            y = y.cuda()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(x, attention_mask=x != 0)
                loss = criterion(logits, y)
                teacher = model.teacher(x).detach()
                loss = loss + 0.5 * F.mse_loss(logits, teacher)
            loss = loss / ACCUMULATION
            loss.backward()
            if (step + 1) % ACCUMULATION == 0:
                torch.distributed.all_reduce(loss, op=torch.distributed.ReduceOp.SUM)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()
        accuracy = evaluate(model, val_loader)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
        print(epoch, accuracy)


def main():
    seed_everything(42)
    model = Net().cuda()
    state = torch.load("init.pt", map_location="cuda")
    model.load_state_dict(state)
    train(model, *make_loaders())


if __name__ == "__main__":
    main()
'''

MIGRATION = (
    ("import random\n", ("import random\n\nimport torch_xla\nimport torch_xla.core.xla_model as xm\n"
     "import torch_xla.distributed.parallel_loader as pl\n")),
    ('device = torch.device("cuda")', "device = xm.xla_device()"),
    ("x, y = x.cuda(), y.cuda()", "x, y = x.to(device), y.to(device)"),
    ("            x = x.cuda()\n            y = y.cuda()\n", ""),
    ("enumerate(train_loader)", "enumerate(pl.MpDeviceLoader(train_loader, device))"),
    ("optimizer.step()\n", "xm.optimizer_step(optimizer)\n"),
    ("optimizer.zero_grad()\n", "optimizer.zero_grad()\n            xm.mark_step()\n"),
    ("Net().cuda()", "Net().to(device)"),
    ('map_location="cuda"', 'map_location="cpu"'),
    ('torch.autocast("cuda", dtype', 'torch.autocast("xla", dtype'),
    ("torch.save(", "xm.save("),
    ("correct += (pred == y).sum().item()", "correct += (pred == y).sum()"),
    ("print(epoch, accuracy)", "xm.master_print(epoch, accuracy)"),
)  # fmt: skip
"""What a faithful migration to one TPU chip changes in :data:`TRAIN`."""
