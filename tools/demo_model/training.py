"""The training loop of both demo models: AdamW for a fixed time on random windows of a stream."""

import time
from dataclasses import dataclass
from typing import Callable

import torch

WARMUP_STEPS = 200
FINAL_RATE = 0.02  # of the peak


class Log:
    """Prints lines with the seconds since the start."""

    def __init__(self):
        self.start = time.time()

    def __call__(self, *words):
        print(f"[{time.time() - self.start:6.1f}s]", *words, flush=True)


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train. The rate is held until `hold` of the time has passed, then
    falls linearly; time and not steps ends the run, so that a budget is kept on any GPU."""

    minutes: float
    batch: int
    sequence: int
    peak_rate: float
    hold: float
    log_every: int

    def rate(self, step, fraction):
        warm = min(1, (step + 1) / WARMUP_STEPS)
        if fraction < self.hold:
            return self.peak_rate * warm
        return self.peak_rate * warm * max(FINAL_RATE, (1 - fraction) / (1 - self.hold))


def make_optimizer(parameters, rate):
    """AdamW with weight decay on matrices only."""
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.05},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = parameters[0].is_cuda
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=fused)


def train(
    schedule: Schedule,
    parameters: list,
    stream: torch.Tensor,
    ahead: int,
    losses: Callable,
    after_step: Callable,
    log: Log,
):
    """Train until the time is over and return the history of logged losses.

    ahead: tokens after the window that the losses look at. losses(windows) returns the total and
    named parts; after_step() runs after every optimizer step.
    """
    optimizer = make_optimizer(parameters, schedule.peak_rate)
    device, length = stream.device, schedule.sequence + ahead
    generator = torch.Generator(device=device).manual_seed(1)
    window = torch.arange(length, device=device)
    start, step, history = time.time(), 0, []
    while (fraction := (time.time() - start) / (schedule.minutes * 60)) < 1:
        rate = schedule.rate(step, fraction)
        for group in optimizer.param_groups:
            group["lr"] = rate
        offsets = torch.randint(
            0, len(stream) - length - 1, (schedule.batch,), device=device, generator=generator
        )
        total, parts = losses(stream[offsets[:, None] + window].long())
        total.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        after_step()
        if step % schedule.log_every == 0:
            values = {name: part.item() for name, part in parts.items()}
            history.append([step, *values.values()])
            log("step", step, *(f"{n} {v:.4f}" for n, v in values.items()), f"rate {rate:.5f}")
        step += 1
    tokens = step * schedule.batch * schedule.sequence
    log("trained", step, "steps,", tokens / 1e6, "M tokens")
    return history
