"""MeZO (Malladi et al. 2023): zeroth-order SGD in place, directions kept as seeds.

A step perturbs the parameters along a random direction z by +eps and by -eps, and moves them along
z by the difference of the two losses. z is never stored: it is drawn again from its seed.
"""

import random

import torch


class MeZO(torch.optim.Optimizer):
    def __init__(self, params, lr, eps=0.03, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, eps=eps, weight_decay=weight_decay))

    def _directions(self, seed):
        """(group, parameter, z) of each parameter, the same for the same seed."""
        torch.manual_seed(seed)
        for group in self.param_groups:
            for parameter in group["params"]:
                z = torch.randn(parameter.shape, device=parameter.device, dtype=parameter.dtype)
                yield group, parameter, z

    def _perturb(self, seed, scale):
        for group, parameter, z in self._directions(seed):
            parameter.add_(z, alpha=scale * group["eps"])

    @torch.no_grad()
    def step(self, closure):
        seed = random.randrange(2**31)
        self._perturb(seed, 1)
        loss_plus = closure()
        self._perturb(seed, -2)
        loss_minus = closure()
        self._perturb(seed, 1)
        eps = self.param_groups[0]["eps"]
        projected = ((loss_plus - loss_minus) / (2 * eps)).item()
        for group, parameter, z in self._directions(seed):
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(z, alpha=-group["lr"] * projected)
        return (loss_plus + loss_minus) / 2
