"""Train an image classifier: python main.py"""

import argparse
import random

import torch
import torch.nn as nn

from dataset import CLASSES, make_loaders
from model import ResNet


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--train-size", type=int, default=424)
    parser.add_argument("--test-size", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--test-batch-size", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--milestones", type=int, nargs="*", default=[4, 6])
    parser.add_argument("--gamma", type=float, default=0.2)
    parser.add_argument("--label-smoothing", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def train_one_epoch(model, criterion, optimizer, loader):
    model.train()
    total_loss, correct, seen = 0.0, 0, 0
    for images, labels in loader:
        images = images.cuda(non_blocking=True)
        labels = labels.cuda(non_blocking=True)
        outputs = model(images)
        loss = criterion(outputs, labels)

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        total_loss += loss.item() * labels.size(0)
        correct += (outputs.argmax(1) == labels).sum().item()
        seen += labels.size(0)
    return total_loss / seen, correct / seen


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct, seen = 0, 0
    for images, labels in loader:
        images = images.cuda(non_blocking=True)
        labels = labels.cuda(non_blocking=True)
        correct += (model(images).argmax(1) == labels).sum().item()
        seen += labels.size(0)
    return correct / seen


def main():
    args = parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.cuda.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True

    train_loader, test_loader = make_loaders(args)
    model = ResNet(len(CLASSES)).cuda()
    criterion = nn.CrossEntropyLoss(label_smoothing=args.label_smoothing).cuda()
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=args.lr,
        momentum=args.momentum,
        weight_decay=args.weight_decay,
        nesterov=True,
    )
    scheduler = torch.optim.lr_scheduler.MultiStepLR(
        optimizer, milestones=args.milestones, gamma=args.gamma
    )

    for epoch in range(1, args.epochs + 1):
        loss, accuracy = train_one_epoch(model, criterion, optimizer, train_loader)
        scheduler.step()
        lr = optimizer.param_groups[0]["lr"]
        print(f"epoch {epoch}: loss {loss:.4f}, train accuracy {accuracy:.3f}, next lr {lr:g}")

    accuracy = evaluate(model, test_loader)
    print(f"test accuracy: {accuracy:.4f}")


if __name__ == "__main__":
    main()
