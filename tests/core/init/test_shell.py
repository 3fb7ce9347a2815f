"""Launch scripts are read word by word: variables, continued lines, wrappers, launchers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.init.shell import commands, parse


def _one(text: str) -> tuple[str, tuple[str, ...], dict[str, str]]:
    (entry,) = commands(text, "x.sh")
    return " ".join(entry.words), entry.launcher, dict(entry.env)


@pytest.mark.parametrize(
    ("text", "words", "launcher"),
    [
        ("python train.py --lr 0.1", "python train.py --lr 0.1", ()),
        ("/usr/bin/python3.8 -u train.py", "python train.py", ()),
        ("python -m pkg.train a=1", "python -m pkg.train a=1", ()),
        ("torchrun --nproc_per_node 4 train.py", "python train.py",
         ("torchrun", "--nproc_per_node", "4")),
        ("torchrun --standalone --nnodes=1 -m pkg.train --x 1", "python -m pkg.train --x 1",
         ("torchrun", "--standalone", "--nnodes=1")),
        ("python -m torch.distributed.launch --nproc_per_node=8 --use_env main.py -b 4",
         "python main.py -b 4",
         ("python", "-m", "torch.distributed.launch", "--nproc_per_node=8", "--use_env")),
        ("accelerate launch --multi_gpu --num_processes 2 run.py --a", "python run.py --a",
         ("accelerate", "launch", "--multi_gpu", "--num_processes", "2")),
        ("deepspeed --num_gpus 8 train.py --deepspeed ds.json", "python train.py --deepspeed ds.json",
         ("deepspeed", "--num_gpus", "8")),
        ("srun -N 2 --gres gpu:4 python train.py", "python train.py", ()),
        ("nohup python train.py > log.txt 2>&1 &", "python train.py", ()),
        ("python train.py | tee log", "python train.py", ()),
        ("poetry run python train.py", "python train.py", ()),
        ("conda run -n env python train.py", "python train.py", ()),
        ("mkdir -p out && cd . && python train.py; echo done", "python train.py", ()),
        ("if true; then python train.py; fi", "python train.py", ()),
        ("python train.py --name 'two words' # a comment", "python train.py --name two words", ()),
    ],
)  # fmt: skip
def test_commands(text: str, words: str, launcher: tuple[str, ...]) -> None:
    found, how, _ = _one(text)
    assert (found, how) == (words, launcher)


def test_variables_lines_and_environment() -> None:
    text = """
export OMP_NUM_THREADS=4
DATA=${DATA_DIR:-data/full}
NAME="base"
CONFIG=configs/$NAME.yaml
CUDA_VISIBLE_DEVICES=0,1 python train.py \\
    --config ${CONFIG} \\
    --data "$DATA" --seed $1 "$@"
"""
    (entry,) = commands(text, "scripts/run.sh")
    assert entry.words == (
        *("python", "train.py", "--config", "configs/base.yaml"),
        *("--data", "data/full", "--seed", "$1"),
    )
    assert dict(entry.env) == {"OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert entry.source == "scripts/run.sh:6" and entry.open == ("$1",)


def test_a_loop_is_taken_at_its_first_turn() -> None:
    text = "for seed in 7 8 9; do\n  python train.py --seed $seed\ndone"
    assert _one(text)[0] == "python train.py --seed 7"
    assert _one("for s in 1 2; do python train.py --seed $s; done")[0] == "python train.py --seed 1"


def test_a_directory_that_is_gone_to_is_kept() -> None:
    (entry,) = commands("cd src\npython train.py", "run.sh")
    assert entry.cwd == "src"
    (entry,) = commands('cd "$(dirname "$0")/.."\npython train.py', "run.sh")
    assert entry.cwd == ""


@pytest.mark.parametrize(
    "text",
    ["python -c 'print(1)'", "pip install torch", "python -m pip install x", "python -m pytest",
     "ls train.py", "echo python", "python", "torchrun", "python 'open", "python setup", "cd x", ""],
)  # fmt: skip
def test_what_starts_no_program_is_left(text: str) -> None:
    assert list(commands(text, "x.sh")) == []


def test_the_number_of_processes() -> None:
    entry = parse("torchrun --nproc-per-node=4 a.py".split(), "x", "launcher")
    assert entry is not None and entry.processes == 4
    entry = parse("torchrun --nproc_per_node $GPUS a.py".split(), "x", "launcher")
    assert entry is not None and entry.processes is None


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    list(commands(text, "x.sh"))
    list(commands(f"python {text}", "x.sh"))
    list(commands(f"A={text}\nfor x in {text}; do torchrun {text}\n$A", "x.sh"))
