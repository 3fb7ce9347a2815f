"""A program that trains, evaluates, saves and resumes; what it saw itself goes to stdout."""

import random
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, TensorDataset


class Numbers(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(10.0))


class ByLength(BatchSampler):
    """Batches of other sizes, as a program of its own makes them."""

    def __init__(self):
        pass

    def __iter__(self):
        return iter([[0, 1, 2], [3], [4, 5]])

    def __len__(self):
        raise RuntimeError("nobody asks for this")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(3, 4)
        self.drop = torch.nn.Dropout(0.2)
        self.b = torch.nn.Linear(4, 2)
        self.a.bias.requires_grad_(False)

    def forward(self, x):
        return self.b(F.dropout(self.drop(self.a(x)), 0.1, self.training))


def main():
    torch.manual_seed(0)
    random.seed(0)
    x = torch.randn(22, 3)
    y = torch.arange(22) % 2
    data = TensorDataset(x, y)
    workers = 1 if "workers" in sys.argv else 0
    train = DataLoader(data, 4, shuffle=True, num_workers=workers, persistent_workers=bool(workers))
    test = DataLoader(data, 8)
    net = Net()
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1, 0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def evaluate():
        with torch.no_grad():
            return sum((net(a).argmax(1) == b).sum().item() for a, b in test)

    def step(a, b):
        loss = F.cross_entropy(net(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in DataLoader(data, 5):  # statistics of the data
        pass
    for _ in range(2):
        net.train()
        for i, (a, b) in enumerate(train):
            step(a, b)
            if i == 2:  # in the middle of a pass
                net.eval()
                evaluate()
                net.train()
            print("order", b.tolist())
        print("right", evaluate())  # in training mode
        schedule.step()
    for i, (a, b) in enumerate(train):
        if i == 2:
            break
        step(a, b)
    print([len(b[0]) for b in DataLoader(data, batch_sampler=ByLength())])
    print([len(b) for b in DataLoader(Numbers(), 4)])
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "n": 1}, "all.pt")
    torch.save({"seed": 1}, "settings.pt")
    save_file({"b": net.b.weight}, "part.safetensors")
    with open("adapter.pt", "wb") as file:
        torch.save([net.a.weight.detach() * 0], file)
    state = torch.load("all.pt")
    net = Net()
    net.load_state_dict({k: v for k, v in state["net"].items() if "b.b" not in k}, strict=False)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1, 0.9)
    optimizer.load_state_dict(state["optimizer"])
    step(x, y)
    iterator = iter(test)  # held to the end
    next(iterator)
    net.eval()
    net(x[:8])
    print(random.random(), torch.rand(1).item())
    main.iterator = iterator


if __name__ == "__main__":
    main()
