"""Trains on padded sequences from a DataLoader, and prints what its model was given.

    fed.py reference|xla|changed|inputs|inputs-changed

``xla``: with workers and MpDeviceLoader, in another order. ``changed``: labels padded with 0, and
other data in one sample. ``inputs``: without a DataLoader.
"""

import sys

import torch

kind = sys.argv[1]


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        ids = torch.randint(1, 50, (3 + index % 5,), generator=torch.Generator().manual_seed(index))
        if kind == "changed" and index in (0, 1, 2, 3):
            ids = ids % 7
        return {"ids": ids, "noise": torch.rand(2), "name": str(index)}


def collate(rows):
    length = max(len(row["ids"]) for row in rows)

    def padded(value):
        pad = torch.nn.functional.pad
        ids = [pad(row["ids"], (0, length - len(row["ids"])), value=value) for row in rows]
        return torch.stack(ids)

    return {
        "input_ids": padded(0),
        "labels": padded(0 if kind == "changed" else -100),
        "noise": torch.stack([row["noise"] for row in rows]),
        "names": [row["name"] for row in rows],
    }


loader = torch.utils.data.DataLoader(
    Sentences(),
    batch_size=4,
    shuffle=True,
    num_workers=2 if kind == "xla" else 0,
    collate_fn=collate,
    generator=torch.Generator().manual_seed(5) if kind == "xla" else None,
)
other = torch.utils.data.DataLoader(torch.arange(8).reshape(8, 1), batch_size=4)
net = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50))
device = torch.device("cpu")
if kind == "xla":
    import torch_xla
    import torch_xla.distributed.parallel_loader as parallel

    device = torch_xla.device()
    net.to(device)
    loader = parallel.MpDeviceLoader(loader, device)
if kind.startswith("inputs"):
    some = torch.arange(12).reshape(3, 4)
    batch = {"input_ids": some, "labels": some, "noise": torch.ones(3, 2)}
    loader = [batch, dict(batch, input_ids=some + 1 if kind == "inputs" else some + 2), batch]
else:  # an evaluation before the training
    net.eval()
    with torch.no_grad():
        for x in other:
            net(x.to(device))
    net.train()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader:
    ids, labels = batch["input_ids"].to(device), batch["labels"].to(device)
    loss = torch.nn.functional.cross_entropy(net(ids).flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if kind == "xla":
        torch_xla.sync()
    print("@", ids.tolist(), [[round(v, 6) for v in row] for row in batch["noise"].tolist()])
