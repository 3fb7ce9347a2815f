"""Train a VAE against a discriminator: python train_vaegan.py"""

import argparse

import torch
import torch.nn.functional as F

from glyphs import make_loaders
from networks import LATENT, VAE, Discriminator, bce, kl_divergence


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=13)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--lr-d", type=float, default=2e-3)
    parser.add_argument("--beta", type=float, default=0.1, help="weight of the KL term")
    parser.add_argument("--adversarial", type=float, default=0.5)
    parser.add_argument("--matching", type=float, default=2.0)
    parser.add_argument("--real-label", type=float, default=0.9, help="one-sided label smoothing")
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def train_discriminator(discriminator, optimizer, real, fake, args):
    optimizer.zero_grad()
    loss = bce(discriminator(real)[0], args.real_label) + bce(discriminator(fake.detach())[0], 0.0)
    loss.backward()
    optimizer.step()
    return loss.detach()


def train_vae(vae, discriminator, optimizer, x, output, args):
    logits, mean, log_var = output
    fake = torch.sigmoid(logits)
    reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / x.size(0)
    # The discriminator is only read here; what its parameters get is cleared before its next step.
    fake_logit, fake_features = discriminator(fake)
    with torch.no_grad():
        real_features = discriminator(x)[1]
    matching = F.mse_loss(fake_features, real_features)
    loss = (
        reconstruction
        + args.beta * kl_divergence(mean, log_var)
        + args.adversarial * bce(fake_logit, 1.0)
        + args.matching * matching
    )
    loss.backward()
    optimizer.step()
    return reconstruction.detach()


@torch.no_grad()
def evaluate(vae, loader):
    """Mean absolute error per pixel of the reconstruction from the mean code."""
    vae.eval()
    error, pixels = 0.0, 0
    for (x,) in loader:
        x = x.cuda()
        decoded = torch.sigmoid(vae(x, None)[0])
        error += (decoded - x).abs().sum().item()
        pixels += x.numel()
    return error / pixels


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    torch.cuda.manual_seed(args.seed)
    train_loader, test_loader = make_loaders(args.batch_size)

    vae = VAE().cuda()
    discriminator = Discriminator().cuda()
    optimizer_vae = torch.optim.Adam(vae.parameters(), lr=args.lr, betas=(0.5, 0.99))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=args.lr_d, betas=(0.5, 0.99))

    for epoch in range(1, args.epochs + 1):
        vae.train()
        losses = []
        for (x,) in train_loader:
            noise = torch.randn(x.size(0), LATENT).cuda()
            x = x.cuda()
            optimizer_vae.zero_grad()
            output = vae(x, noise)
            fake = torch.sigmoid(output[0])
            loss_d = train_discriminator(discriminator, optimizer_d, x, fake, args)
            loss_r = train_vae(vae, discriminator, optimizer_vae, x, output, args)
            losses.append((loss_d.item(), loss_r.item()))
        d, r = (sum(column) / len(losses) for column in zip(*losses))
        print(f"epoch {epoch}: discriminator {d:.4f} reconstruction {r:.3f}")

    print(f"reconstruction error: {evaluate(vae, test_loader):.5f}")


if __name__ == "__main__":
    main()
