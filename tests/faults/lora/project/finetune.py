"""Fine-tune a classifier with LoRA: python finetune.py [--resume CHECKPOINT]"""

import argparse
import os

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from base import load_base
from data import CLASSES, make_dataset
from lora import Classifier, adapter_state_dict, add_lora, load_adapter

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--total-epochs", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--output", default="out")
    parser.add_argument("--resume", default=None, metavar="CHECKPOINT")
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def save_checkpoint(path, model, optimizer, scheduler, epoch):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.save(
        {
            "adapter": adapter_state_dict(model),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "epoch": epoch,
        },
        path,
    )


def train_epoch(model, loader, optimizer, scheduler):
    model.train()
    for ids, labels in loader:
        ids, labels = ids.to(device), labels.to(device)
        loss = F.cross_entropy(model(ids), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainable(model), 1.0)
        optimizer.step()
        scheduler.step()
    return loss.item()


@torch.no_grad()
def accuracy(model, dataset, batch_size=64):
    model.eval()
    correct = 0
    for ids, labels in DataLoader(dataset, batch_size=batch_size):
        predicted = model(ids.to(device)).argmax(-1)
        correct += (predicted == labels.to(device)).sum().item()
    return correct / len(dataset)


def trainable(model):
    return [p for p in model.parameters() if p.requires_grad]


def main():
    args = parse_args()
    train_set, test_set = make_dataset(184, seed=5), make_dataset(192, seed=6)

    checkpoint, epoch = None, 0
    if args.resume:
        checkpoint = torch.load(args.resume, map_location="cpu")
        epoch = checkpoint["epoch"]
    torch.manual_seed(args.seed + epoch)

    loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    model = add_lora(Classifier(load_base(), CLASSES), rank=args.rank)
    if checkpoint:
        load_adapter(model, checkpoint["adapter"])
    model.to(device)
    parameters = trainable(model)
    print(f"{sum(p.numel() for p in parameters)} trainable parameters on {device}")

    optimizer = torch.optim.SGD(parameters, lr=args.lr, momentum=args.momentum, nesterov=True)
    scheduler = torch.optim.lr_scheduler.LinearLR(
        optimizer, 1.0, 0.05, total_iters=args.total_epochs * len(loader)
    )
    if checkpoint:
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])

    for epoch in range(epoch, args.epochs):
        loss = train_epoch(model, loader, optimizer, scheduler)
        print(f"epoch {epoch + 1}: loss {loss:.4f} lr {scheduler.get_last_lr()[0]:.5f}")

    path = os.path.join(args.output, f"adapter-{args.epochs}.pt")
    save_checkpoint(path, model, optimizer, scheduler, args.epochs)
    if args.epochs == args.total_epochs:
        print(f"test accuracy: {accuracy(model, test_set):.4f}")


if __name__ == "__main__":
    main()
