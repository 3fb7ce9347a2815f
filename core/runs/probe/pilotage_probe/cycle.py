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

    # Of the class, and replaced where there is something to say: one cycle is made in each step.
    scaled = unscaled = grads = grads_after = grad_norms = by_hand = before = groups = None
    param_norm = update_norm = update_norms = changed = norm_elements = n = known = None
    owner = roots = optimizer = samples = skipped = closure = returned = end = began = None
    wanted = combined = grads_before = None
    closures = 0  # evaluations of a closure handed to step
    synced = abandoned = False

    def __init__(self):
        self.lead, self.events, self.losses, self.clips = [], [], [], []
        self.zeroed = []  # (id of the optimizer or module, how many losses there were)
        self.steppers = set()  # ids of the optimizers in this step, nested ones included
        self.why = {}  # field -> why it is None

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
        if not self.zeroed:
            return self.losses
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
