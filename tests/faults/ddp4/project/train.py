"""Train on several GPUs, one process each: torchrun --nproc-per-node 4 train.py"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import datasets
from model import Net


def evaluate(model, loader, device):
    """Share of correct answers over the test set, of which each process has a part."""
    model.eval()
    counts = torch.zeros(2, device=device)
    with torch.no_grad():
        for x, y in loader:
            answer = model(x.to(device)).argmax(1)
            counts[0] += (answer == y.to(device)).sum()
            counts[1] += len(y)
    dist.all_reduce(counts)
    model.train()
    return counts[0].item(), counts[1].item()


def main():
    """Train, and print the accuracy on the test set."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=16, help="of one process")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--clip", type=float, default=0.5)
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(local)

    torch.manual_seed(0)
    model = Net().to(device)
    model = DistributedDataParallel(model, device_ids=[local] if cuda else None)
    train_set, test_set = datasets()
    sampler = DistributedSampler(train_set, shuffle=True, seed=3)
    loader = DataLoader(train_set, batch_size=args.batch, sampler=sampler)
    mine = torch.utils.data.Subset(test_set, range(rank, len(test_set), world))
    test_loader = DataLoader(mine, batch_size=25)

    loss_of = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2, device=device)
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = loss_of(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            schedule.step()
            total[0] += loss.detach() * len(y)
            total[1] += len(y)
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {total[0].item() / total[1].item():.4f}", flush=True)

    right, count = evaluate(model, test_loader, device)
    if rank == 0:
        print(f"test accuracy: {right / count:.4f} ({right:.0f}/{count:.0f})", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
