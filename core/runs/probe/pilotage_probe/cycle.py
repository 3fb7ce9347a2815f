"""What happened around one optimizer step, and its event signature."""

MAX_EVENTS = 64
SPARSE = (1, 2, 5)  # times powers of ten


def is_sparse(step):
    """Steps 1, 2, 5, 10, 20, 50, ...: where light mode reads parameters."""
    while step and step % 10 == 0:
        step //= 10
    return step in SPARSE


class Cycle:
    """From the first backward pass of a step to the one after the step."""

    __slots__ = (
        "lead", "events", "losses", "scaled", "clips", "grads", "grads_after", "grad_norms",
        "before", "groups", "param_norm", "update_norm", "update_norms", "changed",
        "norm_elements", "n", "optimizer", "samples", "synced", "end",
    )  # fmt: skip

    def __init__(self):
        for name in self.__slots__:
            setattr(self, name, None)
        self.lead, self.events, self.losses, self.clips = [], [], [], []
        self.synced = False

    def note(self, token):
        """Add one event: B, C(x), R, S, M, L or Z."""
        if token not in ("B", "S") and "B" not in self.events and "S" not in self.events:
            self.lead.append(token)
        elif len(self.events) < MAX_EVENTS:
            self.events.append(token)
        elif token == "S":
            self.events[-1] = token

    def signature(self):
        """The events in order, from the first backward on.

        What came before the very first backward (zero_grad at the top of the loop) is put behind
        the step, where the same call of the next round stands, so that all rounds read alike.
        """
        events = list(self.events)
        after = events[events.index("S") :] if "S" in events else []
        return " ".join(
            events + [token for token in self.lead if token != "M" and token not in after]
        )


def open_cycle(thread):
    """The cycle that waits for its optimizer step."""
    if thread.open is None:
        thread.open = Cycle()
    return thread.open


def note(thread, token):
    """Add an event to the step that was just made, else to the one that is being made."""
    (thread.pending or open_cycle(thread)).note(token)
