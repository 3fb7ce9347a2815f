"""Train a character-level language model: python train.py"""

import argparse
import math
import random

import torch
import torch.nn.functional as F

from data import IGNORE, VOCAB, make_loaders
from model import CharLM, parameter_groups


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--train-lines", type=int, default=152)
    parser.add_argument("--valid-lines", type=int, default=48)
    parser.add_argument("--block", type=int, default=40)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--warmup", type=int, default=8)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=0.5)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1337)
    return parser.parse_args()


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def warmup_cosine(step, warmup, total):
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(1, total - warmup)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress))


def compute_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE)


@torch.no_grad()
def evaluate(model, loader, device):
    """Perplexity per character."""
    model.eval()
    nll, characters = 0.0, 0
    for ids, mask, targets in loader:
        ids, mask, targets = ids.to(device), mask.to(device), targets.to(device)
        logits = model(ids, mask)
        loss = F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum"
        )
        nll += loss.item()
        characters += (targets != IGNORE).sum().item()
    return math.exp(nll / characters)


def main():
    args = parse_args()
    seed_everything(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_loader, valid_loader = make_loaders(args)
    model = CharLM(VOCAB, args.block, dropout=args.dropout)
    model.to(device)
    print(f"{sum(p.numel() for p in model.parameters())} parameters on {device}")

    optimizer = torch.optim.AdamW(
        parameter_groups(model, args.weight_decay), lr=args.lr, betas=(0.9, 0.95)
    )
    total_steps = args.epochs * len(train_loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: warmup_cosine(step, args.warmup, total_steps)
    )

    step = 0
    for epoch in range(1, args.epochs + 1):
        model.train()
        for ids, mask, targets in train_loader:
            ids, mask, targets = ids.to(device), mask.to(device), targets.to(device)
            loss = compute_loss(model(ids, mask), targets)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            scheduler.step()
            step += 1
            if step % args.log_every == 0:
                lr = scheduler.get_last_lr()[0]
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} lr {lr:.2e}")

    perplexity = evaluate(model, valid_loader, device)
    print(f"valid perplexity: {perplexity:.4f}")


if __name__ == "__main__":
    main()
