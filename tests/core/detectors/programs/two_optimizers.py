"""A faithful GAN: two models and two optimizers, ``xm.optimizer_step(barrier=True)``.

The generator's step and the discriminator's each end a graph of their own.
"""

import tiny
import torch
import torch_xla
import torch_xla.core.xla_model as xm

tiny.seeded()
device = torch_xla.device()
generator = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 6))
critic = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
generator, critic = generator.to(device), critic.to(device)
of_generator = torch.optim.Adam(generator.parameters(), lr=0.01)
of_critic = torch.optim.Adam(critic.parameters(), lr=0.01)
judge = torch.nn.BCEWithLogitsLoss()

for step, (real, _) in enumerate(tiny.batches(40)):
    real = real.to(device)
    ones, zeros = torch.ones(len(real), 1, device=device), torch.zeros(len(real), 1, device=device)
    fake = generator(torch.randn(len(real), 4).to(device))
    of_critic.zero_grad()
    (judge(critic(real), ones) + judge(critic(fake.detach()), zeros)).backward()
    xm.optimizer_step(of_critic, barrier=True)
    of_generator.zero_grad()
    loss = judge(critic(fake), ones)
    loss.backward()
    xm.optimizer_step(of_generator, barrier=True)
    if step % 10 == 9:
        print(f"step {step} generator loss {loss.item():.4f}")
