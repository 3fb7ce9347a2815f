"""Train an Inkformer: python -m inkformer.train --device cuda"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from .config import load_config
from .data import Batch, make_loaders
from .evaluate import evaluate
from .model import Inkformer, parameter_groups

BASE_CONFIG = Path(__file__).resolve().parent.parent / "configs" / "base.json"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train an Inkformer on the digits.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--config", default=str(BASE_CONFIG))
    parser.add_argument("--epochs", type=int, help="instead of the config's")
    parser.add_argument("--seed", type=int, help="instead of the config's")
    parser.add_argument("--max-steps", type=int, help="stop early, for a quick look")
    parser.add_argument("--output", default="runs/base", metavar="DIR")
    return parser.parse_args()


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True


def warmup_cosine(step: int, warmup: int, total: int) -> float:
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / max(1, total - warmup)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress))


def main() -> None:
    args = parse_args()
    cfg = load_config(args.config)
    if args.epochs is not None:
        cfg.epochs = args.epochs
    if args.seed is not None:
        cfg.seed = args.seed
    seed_everything(cfg.seed)
    on_gpu = args.device != "cpu"

    train_loader, test_loader = make_loaders(cfg, pin_memory=on_gpu)
    model = Inkformer(cfg)
    optimizer = torch.optim.AdamW(parameter_groups(model, cfg.weight_decay), lr=cfg.lr)
    total_steps = cfg.epochs * len(train_loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: warmup_cosine(step, cfg.warmup_steps, total_steps)
    )
    scaler = torch.cuda.amp.GradScaler(enabled=on_gpu)
    if on_gpu:
        model = model.cuda()
    print(f"parameters: {sum(p.numel() for p in model.parameters())}")

    step = 0
    for epoch in range(1, cfg.epochs + 1):
        model.train()
        start = time.time()
        for batch in train_loader:
            if on_gpu:
                batch = Batch(*(t.cuda(non_blocking=True) for t in batch))
            optimizer.zero_grad(set_to_none=True)
            with torch.cuda.amp.autocast(enabled=on_gpu):
                _, loss = model(*batch)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.clip_norm)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            step += 1
            if step % cfg.log_every == 0:
                lr = scheduler.get_last_lr()[0]
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} lr {lr:.1e}", flush=True)
            if step == args.max_steps:
                break

        if on_gpu:
            torch.cuda.synchronize()
        seconds = time.time() - start
        correct, total = evaluate(model, test_loader, on_gpu)
        print(f"epoch {epoch} took {seconds:.1f} s, accuracy {correct / total:.4f}", flush=True)
        if step == args.max_steps:
            break

    if on_gpu:
        print(f"peak memory: {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB")
    output = Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    torch.save({"model": model.state_dict(), "config": asdict(cfg)}, output / "checkpoint.pt")
    result = {"accuracy": correct / total, "correct": correct, "total": total, "steps": step}
    (output / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"test accuracy: {correct / total:.4f} ({correct}/{total})")


if __name__ == "__main__":
    main()
