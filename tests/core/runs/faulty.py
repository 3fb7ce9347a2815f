"""A copy of the probe in which any hook can be made to fail, and a program to try it on.

The copy differs from the probe by one call, ``fault(where)``, put at the start of everything that
``guard.reporting(where)`` or ``guard.hook(where)`` protects. What it does is said by variables of
the environment that only the copy knows.
"""

from __future__ import annotations

import ast
from pathlib import Path

from core.runs import probe_setup

FAULT = """

import os as _os
_AT = _os.environ.get("FAULT_AT", "")
_KIND = _os.environ.get("FAULT_KIND", "")
_LOG = _os.environ.get("FAULT_LOG", "")
_reached = set()
# Left alone when all fail at once: without them there would be nothing else to fail.
_FIRST = ("start", "finder", "import hook", "finish")
_write, _open = _os.write, _os.open


class Strange(BaseException):
    pass


def _say(text):
    if text not in _reached and _LOG:
        _reached.add(text)
        fd = _open(_LOG, _os.O_WRONLY | _os.O_APPEND | _os.O_CREAT, 0o600)
        _write(fd, text.encode() + b"\\n")
        _os.close(fd)


def fault(where):
    _say(where)
    if _AT not in (where, "*") or (_AT == "*" and where in _FIRST):
        return
    _say("failed: " + where)
    if _KIND.startswith("SIG"):
        import signal
        import time
        _os.kill(_os.getpid(), getattr(signal, _KIND))
        time.sleep(1)  # the handler's exception strikes here
        return
    if _KIND == "depth":
        fault(where)
    raise {
        "RuntimeError": RuntimeError, "KeyError": KeyError, "RecursionError": RecursionError,
        "MemoryError": MemoryError, "OSError": OSError, "SystemExit": SystemExit,
        "KeyboardInterrupt": KeyboardInterrupt, "Strange": Strange,
    }[_KIND]("fault in " + where)
"""


def _guards(node: ast.With) -> ast.expr | None:
    """The name that a ``with`` statement gives to ``reporting``, if it is one of the guard's."""
    call = node.items[0].context_expr
    if not isinstance(call, ast.Call):
        return None
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return call.args[0] if name == "reporting" else None


class _Insert(ast.NodeTransformer):
    def __init__(self, function: str) -> None:
        self.function = function
        self.hooks = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """``guard.hook`` protects the call of ``function`` in the first ``try`` of ``guarded``."""
        self.generic_visit(node)
        if node.name == "guarded":
            body = next(part for part in node.body if isinstance(part, ast.Try)).body
            assert ast.unparse(body[-1]) == "return function(*args, **kwargs)"
            body.insert(-1, ast.parse(f"{self.function}(where)").body[0])
            self.hooks += 1
        return node

    def visit_With(self, node: ast.With) -> ast.With:
        self.generic_visit(node)
        where = _guards(node)
        if where is not None:
            call = ast.parse(f"{self.function}({ast.unparse(where)})").body
            node.body = [*call, *node.body]
        return node


def install(dest: Path, *, mode: probe_setup.Mode = "light") -> dict[str, str]:
    """Like ``probe_setup.install``, of the copy."""
    env = probe_setup.install(dest, mode=mode, steps=1_000_000)
    for path in (dest / "probe" / "pilotage_probe").glob("*.py"):
        own = path.name == "guard.py"
        insert = _Insert("fault" if own else "guard.fault")
        tree = insert.visit(ast.parse(path.read_text()))
        assert insert.hooks == own
        path.write_text(ast.unparse(tree) + (FAULT if own else ""))
    return env


def names() -> set[str]:
    """Every name under which the probe's sources protect something."""
    found: set[str] = set()
    for path in sorted((probe_setup.PROBE / "pilotage_probe").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.With) and (where := _guards(node)) is not None:
                found |= {where.value} if isinstance(where, ast.Constant) else set()  # type: ignore[arg-type]
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else ""
            name = name or getattr(function, "id", "")
            if name == "hook" and isinstance(node.args[0], ast.Constant):
                found.add(str(node.args[0].value))
            if name == "wrap" and len(node.args) > 2 and isinstance(node.args[2], ast.Constant):
                given = dict(zip(("before", "after"), node.args[3:], strict=False))
                given |= {str(k.arg): k.value for k in node.keywords}
                for part, value in given.items():
                    if not (isinstance(value, ast.Constant) and value.value is None):
                        found.add(f"{node.args[2].value!s} {part}")
    return found


PROGRAM = """
import copy, os, sys
import torch
import torch.distributed as dist
from torch import nn

torch.manual_seed(0)
x, y = torch.rand(16, 4).double(), torch.rand(16, 1).double()
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.0), nn.Linear(8, 1)).double()
optimizer = torch.optim.Adam(model[0].parameters(), lr=0.01)
optimizer.add_param_group({"params": list(model[3].parameters())})
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

def loss_of(outputs):
    return (outputs - y).pow(2).mean()

for step in range(3):
    optimizer.zero_grad()
    loss = loss_of(model(x))
    loss.backward()
    if step == 1:
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    scheduler.step()
    print(step, loss.item(), norm.item(), optimizer.param_groups[0]["lr"])

lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=3)
def closure():
    lbfgs.zero_grad()
    loss = loss_of(model(x))
    loss.backward()
    return loss
print(lbfgs.step(closure).item())

if hasattr(torch.amp, "GradScaler"):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    sgd = copy.deepcopy(torch.optim.SGD(model.parameters(), lr=0.1))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for scale in (1.0, float("inf")):
        sgd.zero_grad()
        scaler.scale(loss_of(model(x)) * scale).backward()
        scaler.unscale_(sgd)
        scaler.step(sgd)
        scaler.update()
    print(scaler.get_scale())
if hasattr(torch, "func"):
    print(torch.func.functional_call(model, dict(model.named_parameters()), (x,)).sum().item())
print(torch.autograd.grad(loss_of(model(x)), list(model.parameters()))[0].sum().item())
child = os.fork()
if not child:
    os._exit(5)
print("child", os.WEXITSTATUS(os.waitpid(child, 0)[1]))
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store%d" % os.getpid()),
                        rank=0, world_size=1)
loss_of(model(x)).backward()
for p in model.parameters():
    dist.all_reduce(p.grad)
optimizer.step()
dist.destroy_process_group()

class Own(nn.Linear):
    def clip_grad_norm_(self, limit):
        return nn.utils.clip_grad_norm_(self.parameters(), limit)
torch.manual_seed(1)  # a parity run has set the seed anew where optimizers were made
own, extra = Own(4, 1).double(), nn.Parameter(torch.ones(1).double())
rest = torch.optim.SGD([*own.parameters(), extra], lr=0.1)
for _ in range(2):
    rest.zero_grad()
    (loss_of(own(x)) * extra).sum().backward()
    print(own.clip_grad_norm_(0.5).item())
    if hasattr(nn.utils, "get_total_norm"):
        print(nn.utils.get_total_norm([p.grad for p in own.parameters()]).item())
    rest.step()

class Failing(optimizer.__class__):
    def step(self, closure=None):
        raise ValueError("a failing step")
try:
    loss_of(model(x)).backward()
    Failing(model.parameters()).step()
except ValueError as error:
    import traceback
    traceback.print_exc()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), 4)
print([part.sum().item() for (part,) in loader])
iterator = iter(loader)
next(iterator)
iterator._reset(loader)  # as of workers that stay
torch.save(model.state_dict(), "state%d.pt" % os.getpid())
print(model.load_state_dict(torch.load("state%d.pt" % os.getpid())))
model.eval()
with torch.no_grad():
    print(model(x).sum().item())
for name, value in model.state_dict().items():
    print(name, value.numpy().tobytes().hex())

class Broken(nn.Module):
    def forward(self, x):
        return nn.functional.linear(x, torch.ones(3, 3))
nn.Sequential(nn.Identity(), Broken())(x.float())
"""

DRIVER = """
# Each case runs the program in a fork of this process: torch is loaded only once.
import builtins, json, os, resource, shutil, signal, sys, traceback
import torch
try:
    import torch._dynamo  # optimizers load it, in each case anew otherwise; torch 1.13 has none
except ImportError:
    pass

def prepare(case, out):
    what = case.get("place")
    if what == "full":
        os.symlink("/dev/full", os.path.join(out, "%d.jsonl" % os.getpid()))
    elif what == "no directory":
        os.environ["PILOTAGE_PROBE_OUT"] = "/proc/nonexistent"

def disturb(case, out):
    what = case.get("place")
    def no(*args, **kwargs):
        raise AssertionError("not for the probe")
    if what == "deleted":
        shutil.rmtree(out)
    elif what == "closed":
        os.closerange(3, 256)
    elif what == "limited":
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
    elif what == "patched":
        for owner, names in ((builtins, ["open"]), (json, ["dumps"]),
                             (os, ["write", "fstat", "getpid"])):
            for name in names:
                setattr(owner, name, no)
        os.getpid = lambda: 1
    elif what == "import":
        sys.meta_path = [f for f in sys.meta_path if type(f).__module__ != "pilotage_probe.finder"]
        sys.excepthook = lambda *args: print("excepthook")

def run(case, directory, watched):
    out = os.path.join(directory, "records")
    os.makedirs(out)
    for fd in (1, 2):
        os.dup2(os.open(os.path.join(directory, str(fd)), os.O_CREAT | os.O_WRONLY, 0o600), fd)
    code = 0
    signal.alarm(40)  # ends a case that hangs
    try:
        os.environ["PILOTAGE_PROBE_OUT"] = out
        if "CAPTURE" in os.environ:
            os.environ["PILOTAGE_PROBE_CAPTURE"] = os.path.join(directory, "capture")
        os.environ.update(case.get("env", {}), FAULT_LOG=os.path.join(directory, "log"))
        prepare(case, out)
        if watched:
            import pilotage_probe
            pilotage_probe.start()
        disturb(case, out)
        exec(compile(program, "program.py", "exec"), {"__name__": "__main__"})
    except SystemExit as error:
        code = 90
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

base, watched = sys.argv[1], sys.argv[2] == "watched"
program = open("program.py").read()
cases = json.load(open("cases.json"))
codes = []
for index, case in enumerate(cases):
    pid = os.fork()
    if not pid:
        run(case, os.path.join(base, str(index)), watched)
    codes.append(os.waitpid(pid, 0)[1])
json.dump(codes, open(os.path.join(base, "codes.json"), "w"))
"""
