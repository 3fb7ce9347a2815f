"""What happened around one optimizer step, and its event signature."""

MAX_EVENTS = 64
SPARSE = (1, 2, 5)  # times powers of ten


def is_sparse(step):
    """Steps 1, 2, 5, 10, 20, 50, ...: where light mode reads parameters."""
    while step and step % 10 == 0:
        step //= 10
    return step in SPARSE


class Loss:
    """What one backward pass was called on: a number, a Held, or None and why."""

    __slots__ = ("item", "scaled", "why")

    def __init__(self, item, scaled=None, why=None):
        self.item, self.scaled, self.why = item, scaled, why


class Cycle:
    """From the first backward pass of a step to the one after the step."""

    __slots__ = (
        "lead", "events", "losses", "zeroed", "scaled", "unscaled", "clips", "grads",
        "grads_after", "grad_norms", "by_hand", "before", "groups", "param_norm", "update_norm",
        "update_norms", "changed", "norm_elements", "n", "known", "owner", "steppers", "roots",
        "optimizer", "samples", "skipped", "closures", "closure", "returned", "synced", "end",
        "began", "abandoned", "why", "wanted", "combined", "grads_before",
    )  # fmt: skip

    def __init__(self):
        # Written out: one is made in each step, and a loop takes four times as long.
        self.scaled = self.unscaled = self.grads = self.grads_after = self.grad_norms = None
        self.by_hand = self.before = self.groups = self.param_norm = self.update_norm = None
        self.update_norms = self.changed = self.norm_elements = self.n = self.known = None
        self.owner = self.roots = self.optimizer = self.samples = self.skipped = None
        self.closure = self.returned = self.end = self.began = self.wanted = None
        self.combined = self.grads_before = None
        self.lead, self.events, self.losses, self.clips = [], [], [], []
        self.zeroed = []  # (id of the optimizer or module, how many losses there were)
        self.steppers = set()  # ids of the optimizers in this step, nested ones included
        self.closures = 0  # evaluations of a closure handed to step
        self.why = {}  # field -> why it is None
        self.synced = self.abandoned = False

    def note(self, token):
        """Add one event: B, C(x), R, S, M, L, Z or H."""
        if self.closures > 1 and token != "S":
            return  # a closure is noted once: how often it is evaluated depends on the numbers
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

    def counted(self):
        """The losses whose gradients the step used: those since the last zero_grad that cleared it.

        One of another optimizer, whose step this is not, clears nothing here.
        """
        owners = self.steppers | {id(entry.ref()) for entry in self.roots or ()}
        return self.losses[max([n for owner, n in self.zeroed if owner in owners] or [0]) :]


def open_cycle(thread):
    """The cycle that waits for its optimizer step."""
    if thread.open is None:
        thread.open = Cycle()
    return thread.open


def note(thread, token):
    """Add an event to the step that was just made, else to the one that is being made."""
    (thread.pending or open_cycle(thread)).note(token)
