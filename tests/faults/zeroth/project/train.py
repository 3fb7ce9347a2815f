"""Train a classifier without a backward pass: python train.py"""

import argparse
import random

import torch
import torch.nn.functional as F

from mezo import MeZO
from problem import Network, make_loaders


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--lr", type=float, default=2e-2)
    parser.add_argument("--eps", type=float, default=0.03)
    parser.add_argument("--weight-decay", type=float, default=1e-2)
    parser.add_argument("--gamma", type=float, default=0.9, help="of the learning rate, per epoch")
    parser.add_argument("--seed", type=int, default=3)
    return parser.parse_args()


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    correct = 0
    for x, y in loader:
        correct += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
    return correct / len(loader.dataset)


def main():
    args = parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_loader, test_loader = make_loaders(args.batch_size)
    model = Network().to(device)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = MeZO(trained, lr=args.lr, eps=args.eps, weight_decay=args.weight_decay)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, args.gamma)

    for epoch in range(1, args.epochs + 1):
        model.train()
        total = 0.0
        for x, y in train_loader:
            x, y = x.to(device), y.to(device)
            loss = optimizer.step(lambda: F.cross_entropy(model(x), y))
            total += loss.item()
        scheduler.step()
        print(f"epoch {epoch}: loss {total / len(train_loader):.4f}")

    print(f"test accuracy: {evaluate(model, test_loader, device):.4f}")


if __name__ == "__main__":
    main()
