"""Encoder, decoder and discriminator of a VAE with an adversarial loss, for 8x8 glyphs."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIDE, LATENT = 8, 6


class Encoder(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(SIDE * SIDE, hidden), nn.LeakyReLU(0.2))
        self.mean = nn.Linear(hidden, LATENT)
        self.log_var = nn.Linear(hidden, LATENT)

    def forward(self, x):
        h = self.body(x)
        return self.mean(h), self.log_var(h).clamp(-8.0, 4.0)


class VAE(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.encoder = Encoder(hidden)
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, hidden),
            nn.LeakyReLU(0.2),
            nn.Linear(hidden, SIDE * SIDE),
        )

    def forward(self, x, noise):
        """Logits of the pixels, mean and log variance; `noise` is standard normal, or None."""
        mean, log_var = self.encoder(x)
        z = mean if noise is None else mean + noise * (0.5 * log_var).exp()
        return self.decoder(z), mean, log_var


class Discriminator(nn.Module):
    """Real or decoded? A logit, and the features that it comes from."""

    def __init__(self, hidden=48):
        super().__init__()
        self.features = nn.Sequential(
            nn.Linear(SIDE * SIDE, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.Tanh()
        )
        self.logit = nn.Linear(hidden, 1)

    def forward(self, x):
        features = self.features(x)
        return self.logit(features).squeeze(-1), features


def kl_divergence(mean, log_var):
    """To the standard normal: summed over the latent, averaged over the batch."""
    return -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(1).mean()


def bce(logits, target):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target))
