"""The probe follows a training program however it is started, and where it can't that is said."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.runs import probe_setup
from core.runs.records import (
    FinishRecord,
    Hello,
    Malformed,
    RankRecord,
    Record,
    StepRecord,
    TorchRecord,
    XlaRecord,
)
from core.runs.tail import RecordTail
from core.runs.unwatched import Survey
from tests.core.runs.interpreters import each_python, need, version

TRAIN = """
import os, sys, torch

def train(steps, wrap=lambda model: model):
    torch.manual_seed(0)
    model = wrap(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()
    return os.getpid()
"""
SCRIPT = TRAIN + "\nif __name__ == '__main__':\n    train(2)\n    print('done')\n"


class Launched:
    """A command that ran with the probe in its environment, and what was recorded."""

    def __init__(self, done: subprocess.CompletedProcess[str], records: list[Record]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.records = records

    def of(self, cls: type[Any], pid: int | None = None) -> list[Any]:
        return [r for r in self.records if isinstance(r, cls) and pid in (None, r.pid)]

    @property
    def trained(self) -> dict[int, int]:
        """Steps by process."""
        counts: dict[int, int] = {}
        for step in self.of(StepRecord):
            counts[step.pid] = counts.get(step.pid, 0) + 1
        return counts

    @property
    def pids(self) -> set[int | None]:
        return {record.pid for record in self.records}


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    """The environment of a run with a probe in ``tmp_path``."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PILOTAGE"))}
    return {**env, **more, **probe_setup.install(tmp_path, env=more), "OMP_NUM_THREADS": "1"}


def launch(tmp_path: Path, command: list[str], timeout: float = 120, **env: str) -> Launched:
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environ(tmp_path, **env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    found = RecordTail(probe_setup.records_dir(tmp_path)).finish()
    assert not [r for r in found if isinstance(r, Malformed)]
    return Launched(done, [r for r in found if isinstance(r, Record)])


# --- one process -----------------------------------------------------------------------------


def _notebook(tmp_path: Path) -> None:
    body = "# %%\ntry:\n    get_ipython().run_line_magic('matplotlib', 'inline')\n"
    body += f"except NameError:\n    pass\n# %%\n{SCRIPT}"
    (tmp_path / "notebook.py").write_text(body)


def _zipapp(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", SCRIPT)


def _wrapper(tmp_path: Path) -> None:
    # As `uv run` and `poetry run` do: find the Python, and become it.
    wrapper = tmp_path / "wrap"
    wrapper.write_text('#!/bin/sh\nset -e\nshift\nexec "$@"\n')
    wrapper.chmod(0o755)


@each_python
@pytest.mark.parametrize(
    ("command", "prepare"),
    [
        ("{py} -m train", None),
        (
            '{py} -c \'import runpy; runpy.run_path("notebook.py", run_name="__main__")\'',
            _notebook,
        ),
        ("./wrap run {py} app.pyz", _zipapp),
    ],
    ids=["module", "notebook", "zip"],
)
def test_training_is_seen(tmp_path: Path, python: str, command: str, prepare: Any) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    _wrapper(tmp_path)
    if prepare is not None:
        prepare(tmp_path)
    seen = launch(tmp_path, ["/bin/sh", "-c", command.format(py=python)])
    assert (seen.code, seen.out, seen.err) == (0, "done\n", "")
    (hello,) = seen.of(Hello)
    assert seen.trained == {hello.pid: 2}
    assert seen.of(FinishRecord)[0].reason == "exit"
    assert {r.rank for r in seen.records} == {None}


@each_python
@pytest.mark.parametrize(
    "command",
    [
        "{py} up.py",
        "{py} -m up",
        "{py} -X utf8 -u -O up.py --lr 1",
        "{py} -c 'print(\"done\")'",
        "{py} < up.py",
        "./wrap run {py} up.py",
        "cd / && {py} $OLDPWD/up.py",
        "./script",
        "exec {py} up.py",
    ],
)
def test_a_process_is_followed(tmp_path: Path, python: str, command: str) -> None:
    (tmp_path / "up.py").write_text("print('done')\n")
    _wrapper(tmp_path)
    script = tmp_path / "script"
    script.write_text(f"#!{python}\nprint('done')\n")
    script.chmod(0o755)
    seen = launch(tmp_path, ["/bin/sh", "-c", command.format(py=python)])
    assert (seen.code, seen.out, seen.err) == (0, "done\n", "")
    assert [h.argv[0] for h in seen.of(Hello)] == [python]
    assert [f.reason for f in seen.of(FinishRecord)] == ["exit"]


@each_python
def test_a_shell_launcher_starts_two_programs(tmp_path: Path, python: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "run.sh").write_text(
        f"set -e\nexport PYTHONPATH=src:$PYTHONPATH\n(cd / && {python} -c 'print(3)')\n"
        f"{python} -u train.py | tail -n 1\n"
    )
    seen = launch(tmp_path, ["bash", "run.sh"])
    assert (seen.code, seen.out) == (0, "3\ndone\n")
    assert list(seen.trained.values()) == [2]
    assert len({h.pid for h in seen.of(Hello)}) == 2


@each_python
def test_a_package_that_find_spec_asks_for_first_is_still_seen(tmp_path: Path, python: str) -> None:
    # transformers and accelerate do so to learn whether torch is there.
    program = "import importlib.util\nassert importlib.util.find_spec('torch')\n" + SCRIPT
    (tmp_path / "train.py").write_text(program)
    seen = launch(tmp_path, [python, "train.py"])
    assert list(seen.trained.values()) == [2]


@each_python
def test_a_virtual_environment_of_the_command_and_a_pth_that_loads_torch(
    tmp_path: Path, python: str
) -> None:
    made = subprocess.run(
        [python, "-m", "venv", "--without-pip", str(tmp_path / "venv")], timeout=120
    )
    assert made.returncode == 0
    inner = tmp_path / "venv" / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    (theirs, ours) = (
        subprocess.run([p, "-I", "-c", where], capture_output=True, text=True).stdout.strip()
        for p in (python, str(inner))
    )
    # Lines of a .pth run before any sitecustomize does.
    (Path(ours) / "a.pth").write_text(f"{theirs}\nimport torch\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    seen = launch(tmp_path, [str(inner), "train.py"])
    assert (seen.code, seen.out) == (0, "done\n")
    assert list(seen.trained.values()) == [2]


@each_python
def test_the_projects_own_customize_modules_run(tmp_path: Path, python: str) -> None:
    base = os.path.realpath(python)  # in a virtual environment usercustomize is off
    theirs, users = tmp_path / "theirs", tmp_path / "users"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("print('site', __name__)\n")
    where = "import site; print(site.getusersitepackages())"
    found = subprocess.run(
        [base, "-c", where],
        env={"PYTHONUSERBASE": str(users)},
        capture_output=True,
        text=True,
    ).stdout.strip()
    Path(found).mkdir(parents=True)
    (Path(found) / "usercustomize.py").write_text("print('user', __name__)\n")
    seen = launch(
        tmp_path,
        [base, "-c", "import sys; print('sitecustomize' in sys.modules)"],
        PYTHONPATH=str(theirs),
        PYTHONUSERBASE=str(users),
    )
    assert (seen.out, seen.err) == ("site sitecustomize\nuser usercustomize\nTrue\n", "")
    assert len(seen.of(Hello)) == 1


@each_python
def test_a_process_that_becomes_itself_again_greets_again(tmp_path: Path, python: str) -> None:
    (tmp_path / "train.py").write_text(
        TRAIN
        + """
if len(sys.argv) == 1:
    train(2)
    try:
        os.execv("/nonexistent", ["x"])
    except OSError as error:
        print("went on", flush=True)
    train(1)
    os.execv(sys.executable, [sys.executable, __file__, "again"])
train(3)
"""
    )
    seen = launch(tmp_path, [python, "train.py"])
    assert (seen.code, seen.out, seen.err) == (0, "went on\n", "")
    assert len(seen.pids) == 1
    told = [
        (r.K, r.n if isinstance(r, StepRecord) else r.reason if isinstance(r, FinishRecord) else "")
        for r in seen.records
        if isinstance(r, Hello | StepRecord | FinishRecord)
    ]
    # The first finish is of the exec that failed: nothing was lost by it.
    assert told == [
        *[("hello", ""), ("step", 1), ("step", 2), ("finish", "exec")],
        *[("step", 3), ("finish", "exec")],
        *[("hello", ""), ("step", 1), ("step", 2), ("step", 3), ("finish", "exit")],
    ]
    assert [h.argv[-1] for h in seen.of(Hello)] == ["train.py", "again"]


# --- several processes -----------------------------------------------------------------------

RANKED = (
    TRAIN
    + """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def main():
    dist.init_process_group("gloo")
    train(2, DistributedDataParallel)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""
)


def _ranks_are_told_apart(seen: Launched) -> None:
    assert seen.code == 0, seen.err
    ranked = {s.pid: s.rank for s in seen.of(StepRecord)}
    assert sorted(ranked.values()) == [0, 1]
    assert seen.trained == dict.fromkeys(ranked, 2)
    for pid, rank in ranked.items():
        learned = seen.of(RankRecord, pid)
        assert [(r.rank, r.world) for r in learned][-1] == (rank, 2)
        assert {s.rank for s in seen.of(FinishRecord, pid)} == {rank}
        assert [h.mode for h in seen.of(Hello, pid)] == ["light"]


@each_python
def test_torchrun(tmp_path: Path, python: str) -> None:
    need(python, "torch.distributed.run")
    (tmp_path / "train.py").write_text(RANKED)
    run = [python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    seen = launch(tmp_path, [*run, "train.py"])
    _ranks_are_told_apart(seen)
    workers = set(seen.trained)
    assert {h.rank for h in seen.of(Hello) if h.pid in workers} == {0, 1}
    assert {r.local_rank for r in seen.of(RankRecord) if r.pid in workers} == {0, 1}
    (agent,) = {h.pid for h in seen.of(Hello)} - workers
    assert all(h.ppid == agent for h in seen.of(Hello) if h.pid in workers)


@each_python
def test_accelerate_launch(tmp_path: Path, python: str) -> None:
    need(python, "accelerate")
    (tmp_path / "train.py").write_text(
        TRAIN
        + """
sys.modules["torch_xla"] = None  # else it is preferred to the CPU
from accelerate import Accelerator

if __name__ == "__main__":
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        accelerator.backward(model(torch.ones(3, 2)).sum())
        optimizer.step()
    accelerator.wait_for_everyone()
"""
    )
    # What it starts on GPUs: one process each. Here they find none, and use the CPU.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [python, "-m", "accelerate.commands.launch", "--multi_gpu"]
    command += ["--num_processes", "2"]
    command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    command += ["--num_cpu_threads_per_process", "1", "--main_process_port", port, "train.py"]
    _ranks_are_told_apart(launch(tmp_path, command))


@each_python
def test_spawn_tells_the_rank_when_it_is_known(tmp_path: Path, python: str) -> None:
    (tmp_path / "train.py").write_text(
        RANKED.replace(
            'def main():\n    dist.init_process_group("gloo")\n',
            'def main(index, port):\n    train(1)\n    dist.init_process_group("gloo", rank=1 - index,'
            "\n        world_size=2, init_method='file://' + port)\n",
        ).replace(
            "    main()\n", "    torch.multiprocessing.spawn(main, (sys.argv[1],), nprocs=2)\n"
        )
    )
    seen = launch(tmp_path, [python, "train.py", str(tmp_path / "store")])
    assert seen.code == 0, seen.err
    assert sorted(seen.trained.values()) == [3, 3]
    for pid in seen.trained:
        sources = [(r.source, r.rank) for r in seen.of(RankRecord, pid)]
        index = dict(sources)["spawn"]
        # The program gives rank 1 to the process with index 0.
        assert sources == [("spawn", index), ("torch.distributed", 1 - index)]
        model_at = [(type(r).__name__, r.rank) for r in seen.records if r.pid == pid]
        assert ("ModelRecord", index) in model_at
        assert [s.rank for s in seen.of(StepRecord, pid)][-1] == 1 - index


POOL = (
    TRAIN
    + """
import multiprocessing

def idle(_):
    return os.getpid()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(1) as trainer, context.Pool(1) as other:
        print(trainer.apply(train, (2,)), other.apply(idle, (0,)))
        trainer.close(); trainer.join()
        other.close(); other.join()
"""
)


@each_python
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_pools_speak_only_where_they_train(tmp_path: Path, python: str, method: str) -> None:
    (tmp_path / "train.py").write_text(POOL)
    seen = launch(tmp_path, [python, "train.py", method])
    assert seen.code == 0, seen.err
    trainer, idle = map(int, seen.out.split())
    assert seen.trained == {trainer: 2}
    assert idle not in seen.pids
    main = seen.of(Hello)[0].pid
    assert {h.pid for h in seen.of(Hello)} == {main, trainer}
    # It ended by os._exit, and still the last step is there.
    (end,) = seen.of(FinishRecord, trainer)
    assert (end.steps, end.reason) == (2, "os._exit(0)")


LOADER = (
    TRAIN
    + """
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    net = torch.nn.Linear(2, 2)
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == int(sys.argv[2]):
            os._exit(3)
        return self.net(torch.ones(2)).detach()

if __name__ == "__main__":
    loader = DataLoader(Data(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        for batch in loader:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
    except RuntimeError as error:
        print("a worker died" if "exited unexpectedly" in str(error) else error)
"""
)


@each_python
@pytest.mark.parametrize(("method", "dies"), [("spawn", -1), ("fork", 6)])
def test_workers_of_a_data_loader_say_nothing(
    tmp_path: Path, python: str, method: str, dies: int
) -> None:
    (tmp_path / "train.py").write_text(LOADER)
    seen = launch(tmp_path, [python, "train.py", method, str(dies)])
    assert (seen.code, seen.out) == (0, "" if dies < 0 else "a worker died\n"), seen.err
    (pid,) = seen.pids
    assert dies >= 0 or seen.trained == {pid: 4}


@pytest.mark.xla
@each_python
def test_torch_xla_starts_processes_of_its_own(tmp_path: Path, python: str) -> None:
    need(python, "torch_xla")
    (tmp_path / "train.py").write_text(
        """
import os
import torch, torch_xla, torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp

def main(index):
    device = xm.xla_device()
    model = torch.nn.Linear(2, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(3, 2, device=device)).sum().backward()
        optimizer.step()
        xm.mark_step()
    print(os.getpid())

if __name__ == "__main__":
    """
        + ("xmp.spawn(main)" if version(python) < (3, 9) else "torch_xla.launch(main)")
        + "\n"
    )
    seen = launch(
        tmp_path,
        [python, "train.py"],
        PJRT_DEVICE="CPU",
        CPU_NUM_DEVICES="1",
        XLA_FLAGS="--xla_backend_optimization_level=0",
    )
    assert seen.code == 0, seen.err
    trainer = int(seen.out.split()[-1])
    assert seen.trained == {trainer: 2}
    assert [x.devices for x in seen.of(XlaRecord, trainer)][-1] == ("CPU:0",)
    assert seen.of(FinishRecord, trainer)[0].steps == 2


# --- where it can't follow -------------------------------------------------------------------


@contextlib.contextmanager
def waiting(tmp_path: Path, command: list[str], **env: str) -> Iterator[int]:
    """A program that waits, with the probe in its environment; yields its id when it is up."""
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environ(tmp_path, **env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.kill()


UP = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"


def survey(tmp_path: Path, *pids: int) -> list[str]:
    """What is said of these processes, while they run and at the end."""
    found = Survey(tmp_path)
    found.heard(RecordTail(probe_setup.records_dir(tmp_path)).finish())
    return found.look(pids) + found.close()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("{py} -I up.py", "-I, which ignores PYTHONPATH. Start it without -I"),
        ("{py} -E up.py", "-E, which ignores PYTHONPATH. Start it without -E"),
        ("{py} -uS up.py", "-S, which leaves out site. Start it without -S"),
        ("{py} -Es up.py", "-E, which ignores"),
        ("./script", "-E, which ignores PYTHONPATH. Start it without -E; the flag may stand in"),
        ("env -i {py} up.py", "an environment of its own"),
        ("PYTHONPATH=src {py} up.py", "its PYTHONPATH was replaced. Put new directories before"),
        ("env -u PYTHONPATH {py} up.py", "PYTHONPATH was taken from its environment"),
        ("PYTHONPATH=theirs:$PYTHONPATH {py} up.py", "a sitecustomize in theirs comes before"),
        ("PYTHONPATH=$PYTHONPATH:theirs {py} up.py", None),
        ("PYTHONPATH=src:$PYTHONPATH {py} up.py", None),
        ("{py} -u -s up.py", None),
    ],
)
def test_a_python_that_is_not_followed_is_named(
    tmp_path: Path, command: str, said: str | None
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("")
    (tmp_path / "up.py").write_text(UP)
    script = tmp_path / "script"
    script.write_text(f"#!{sys.executable} -E\n{UP}\n")
    script.chmod(0o755)
    line = command.format(py=sys.executable) + "; :"
    with waiting(tmp_path, ["/bin/sh", "-c", line]) as pid:
        found = survey(tmp_path, pid)
    if said is None:
        assert found == []
    else:
        (text,) = found
        assert text.startswith(f"A Python process of this run (pid {pid}: ")
        assert said in text


def test_an_unwatched_trainer_is_named_while_it_runs(tmp_path: Path) -> None:
    # The second one is followed, so the end alone would not tell.
    code = "import torch; " + UP
    with waiting(tmp_path, [sys.executable, "-I", "-c", code]) as pid, contextlib.ExitStack() as up:
        watched = up.enter_context(waiting(tmp_path, [sys.executable, "-c", code]))
        found = Survey(tmp_path)
        found.heard(RecordTail(probe_setup.records_dir(tmp_path)).finish())
        (text,) = found.look([pid, watched])
        assert f"(pid {pid}: " in text
        assert found.look([pid, watched]) == []  # said once
        assert found.close() == []
    records = RecordTail(probe_setup.records_dir(tmp_path)).finish()
    assert [r.pid for r in records if isinstance(r, TorchRecord)] == [watched]


def test_a_run_without_python_says_so(tmp_path: Path) -> None:
    with waiting(tmp_path, ["/bin/sh", "-c", "echo $$; cat; :"]) as pid:
        (text,) = survey(tmp_path, pid)
    assert text.startswith("No Python process of this run was seen")
    assert "follows Python only" in text
