import argparse
import json
import logging
import os

import torch
import torch.distributed as dist
import yaml
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from textcls.data import Bags, collate
from textcls.engine import evaluate, logger, train_epoch
from textcls.model import Classifier


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--output-dir", default="exp/debug")
    args = parser.parse_args()
    with open(args.config) as file:
        cfg = yaml.safe_load(file)

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    use_cuda = cfg["device"] == "cuda" and torch.cuda.is_available()
    dist.init_process_group("nccl" if use_cuda else "gloo")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    if use_cuda:
        torch.cuda.set_device(local_rank)
    device = torch.device(f"cuda:{local_rank}" if use_cuda else "cpu")
    torch.manual_seed(cfg["seed"])
    torch.cuda.manual_seed_all(cfg["seed"])

    vocab = cfg["data"]["vocab"]
    train_set = Bags(cfg["data"]["examples"], vocab, seed=0)
    sampler = DistributedSampler(train_set, seed=cfg["seed"])
    batch_size = cfg["train"]["batch_size"]
    train_loader = DataLoader(train_set, batch_size, sampler=sampler, collate_fn=collate)
    valid_loader = DataLoader(Bags(300, vocab, seed=1), batch_size, collate_fn=collate)

    model = DDP(Classifier(vocab, cfg["model"]["dim"]).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=float(cfg["train"]["lr"]))
    scaler = torch.cuda.amp.GradScaler(enabled=use_cuda and cfg["train"]["fp16"])
    best = 0.0
    for epoch in range(cfg["train"]["epochs"]):
        sampler.set_epoch(epoch)
        train_epoch(model, train_loader, optimizer, scaler, device, cfg["train"]["clip"], epoch)
        accuracy = evaluate(model, valid_loader, device)
        best = max(best, accuracy)
        if rank == 0:
            logger.info(f"epoch {epoch}: valid accuracy {accuracy:.4f} (best {best:.4f})")
    if rank == 0:
        os.makedirs(args.output_dir, exist_ok=True)
        torch.save(model.state_dict(), os.path.join(args.output_dir, "best.pt"))
        with open(os.path.join(args.output_dir, "metrics.json"), "w") as file:
            json.dump({"valid_accuracy": accuracy, "best_accuracy": best}, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
