import logging

import torch
from torch.nn.utils import clip_grad_norm_

logger = logging.getLogger("textcls")


def train_epoch(model, loader, optimizer, scaler, device, clip, epoch):
    model.train()
    for step, (words, labels) in enumerate(loader):
        words, labels = words.to(device, non_blocking=True), labels.to(device)
        with torch.autocast("cuda", enabled=device.type == "cuda"):
            loss = torch.nn.functional.cross_entropy(model(words), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            logger.info("epoch %d step %d train loss %.4f", epoch, step, loss.item())


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    right = total = 0
    for words, labels in loader:
        right += (model(words.to(device)).argmax(1).cpu() == labels).sum().item()
        total += len(labels)
    return right / total
