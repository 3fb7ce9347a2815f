"""Which command is taken: the ranking that `core.init.entries` states."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.init.build import reference_command, target_command
from core.init.entries import find_entries, missing, text_of
from core.init.script import Scripts
from core.risk.tree import list_files
from tests.core.init.reading import TRAINS, entries, write


def _first(root: Path) -> str:
    found, _ = entries(root)
    return text_of(found[0].words)


def test_each_kind_of_place_is_found(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "pkg/__init__.py": "",
            "pkg/train.py": TRAINS,
            "pkg/__main__.py": "from pkg.train import main\nmain()\n",
            "scripts/run.sh": "python -m pkg.train --a 1\n",
            "Makefile": "PY = python\ntrain:\n\t@$(PY) -m pkg.train --b 2\n",
            "README.md": "# x\n```bash\n$ python -m pkg.train --c 3\n```\n",
            "docs/README.rst": "Run::\n\n    python -m pkg.train --d 4 \\\n        --e 5\n",
            "pyproject.toml": '[project.scripts]\npkg-train = "pkg.train:main"\n',
            "old/setup.cfg": "[options.entry_points]\nconsole_scripts =\n  t = pkg.train:main\n",
        },
    )
    found, _ = entries(tmp_path)
    texts = {text_of(e.words): (e.kind, e.source) for e in found}
    assert texts["python -m pkg.train --a 1"] == ("launcher", "scripts/run.sh:1")
    assert texts["python -m pkg.train --b 2"] == ("makefile", "Makefile:3 (target train)")
    assert texts["python -m pkg.train --c 3"] == ("readme", "README.md:3")
    assert texts["python -m pkg.train --d 4 --e 5"] == ("readme", "docs/README.rst:3")
    assert texts["python -m pkg.train"][0] == "console script"
    assert texts["python -m pkg"][0] == "main"
    assert text_of(found[0].words) == "python -m pkg.train --a 1"


@pytest.mark.parametrize(
    ("files", "taken"),
    [
        # A launcher before a README, a README before a bare main block.
        ({"run.sh": "python t.py --a", "README.md": "```\npython t.py --b\n```", "t.py": TRAINS},
         "python t.py --a"),
        ({"README.md": "```sh\npython t.py --b\n```", "t.py": TRAINS}, "python t.py --b"),
        # What trains before what does not.
        ({"a.py": "if __name__ == '__main__':\n    pass", "b.py": TRAINS}, "python b.py"),
        # Training before evaluation, by name.
        ({"eval.sh": "python eval.py", "train.sh": "python train.py",
          "eval.py": TRAINS, "train.py": TRAINS}, "python train.py"),
        # The project's own before its examples and tests.
        ({"examples/train.py": TRAINS, "fit.py": TRAINS}, "python fit.py"),
        # A launcher of a file that is not there is no use.
        ({"run.sh": "python gone.py", "train.py": TRAINS}, "python train.py"),
        # A command with unknown words comes after a whole one of its kind.
        ({"a.sh": "python t.py $1 $2", "b.sh": "python t.py --x", "t.py": TRAINS}, "python t.py --x"),
        # Without a GPU, a command that says it is for the CPU.
        ({"README.md": "```\npython t.py\npython t.py --device=cpu\n```", "t.py": TRAINS},
         "python t.py --device=cpu"),
        # A script without a guard, that trains as it is loaded.
        ({"a.py": "import torch\nclass A:\n    def f(self):\n        loss.backward()\n",
          "b.py": "import torch\nfor x in y:\n    loss.backward()\n"}, "python b.py"),
        # One that lacks a required option comes after one that gives it.
        ({"README.md": "```\npython t.py\npython t.py --data d\n```",
          "t.py": "import argparse, torch\np = argparse.ArgumentParser()\n"
                  "p.add_argument('--data', required=True)\nloss.backward()\n"},
         "python t.py --data d"),
    ],
)  # fmt: skip
def test_the_ranking(files: dict[str, str], taken: str, tmp_path: Path) -> None:
    assert _first(write(tmp_path, files)) == taken


def test_a_score_says_what_it_is_made_of(tmp_path: Path) -> None:
    found, _ = entries(write(tmp_path, {"train.py": TRAINS}))
    assert found[0].score == 30 + 40 + 25 + 10
    assert found[0].why == ("main 30", "it trains +40", "by its name +25", "at the top +10")


def test_a_file_of_a_package_is_started_as_a_module(tmp_path: Path) -> None:
    code = "from .model import Net\n" + TRAINS
    assert _first(write(tmp_path, {"p/q/train.py": code, "p/q/model.py": ""})) == (
        "python -m p.q.train"
    )


def test_required_options_that_are_not_given(tmp_path: Path) -> None:
    code = """
        import argparse
        import torch
        p = argparse.ArgumentParser()
        p.add_argument("data")
        p.add_argument("extra", nargs="?")
        p.add_argument("-o", "--out-dir", required=True)
        p.add_argument("--lr", default=0.1)
        loss.backward()
        if __name__ == "__main__":
            pass
    """
    found, scripts = entries(write(tmp_path, {"train.py": code}))
    assert missing(found[0], scripts) == ["data", "--out-dir"]
    made = reference_command(found[0], scripts, gpu=False)
    assert made.edits == [
        "data is required and not given here",
        "--out-dir is required and not given here",
    ]


def _commands(root: Path, gpu: bool = False) -> tuple[str, str, dict[str, str], dict[str, str]]:
    listing = list_files(root)
    scripts = Scripts(listing)
    entry = find_entries(listing, scripts)[0]
    reference = reference_command(entry, scripts, gpu)
    target = target_command(entry, reference, scripts)
    return reference.text, target.text, reference.env, target.env


DEVICE = "import argparse, torch\np.add_argument('--device', default='cuda')\nloss.backward()\n"


@pytest.mark.parametrize(
    ("line", "code", "reference", "target"),
    [
        ("python t.py --device cuda", DEVICE, "python t.py --device cpu", "python t.py --device xla"),
        ("python t.py --device=cuda:1", DEVICE, "python t.py --device=cpu", "python t.py --device=xla"),
        ("python t.py", DEVICE, "python t.py", "python t.py --device xla"),
        ("python t.py trainer.device=gpu", TRAINS, "python t.py trainer.device=cpu",
         "python t.py trainer.device=xla"),
        ("python t.py", TRAINS, "python t.py", "python t.py"),
        ("python t.py --accelerator gpu", TRAINS, "python t.py --accelerator cpu",
         "python t.py --accelerator tpu"),
        ("torchrun --nproc_per_node 4 t.py --a 1", TRAINS, "torchrun --nproc_per_node=1 t.py --a 1",
         "python t.py --a 1"),
        ("torchrun --nproc_per_node=2 -m t --a", TRAINS, "torchrun --nproc_per_node=1 -m t --a",
         "python -m t --a"),
        ("python -m torch.distributed.launch --nproc_per_node 2 --use_env t.py", TRAINS,
         "python -m torch.distributed.launch --nproc_per_node 1 --use_env t.py", "python t.py"),
        ("python -m torch.distributed.run --nproc_per_node=2 -m t --a", TRAINS,
         "python -m torch.distributed.run --nproc_per_node=1 --module t --a", "python -m t --a"),
        ("accelerate launch --multi_gpu t.py --fp16", TRAINS, "python t.py", "python t.py"),
        ("deepspeed --num_gpus 2 t.py", TRAINS, "python t.py", "python t.py"),
        ("python t.py --no-cuda", TRAINS, "python t.py --no-cuda", "python t.py"),
        ("cd sub && python t.py --x 1", TRAINS, "cd sub && python t.py --x 1",
         "cd sub && python t.py --x 1"),
    ],
)  # fmt: skip
def test_reference_and_target(
    line: str, code: str, reference: str, target: str, tmp_path: Path
) -> None:
    write(tmp_path, {"run.sh": line, "t.py": code, "sub/t.py": code})
    assert _commands(tmp_path)[:2] == (reference, target)


def test_with_a_gpu_the_command_stays_as_it_is(tmp_path: Path) -> None:
    line = "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 t.py --device cuda --fp16"
    write(tmp_path, {"run.sh": line, "t.py": DEVICE})
    reference, target, ref_env, target_env = _commands(tmp_path, gpu=True)
    assert reference == "torchrun --nproc_per_node=2 t.py --device cuda --fp16"
    assert ref_env == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert target == "python t.py --device xla --fp16"
    assert target_env == {"PJRT_DEVICE": "CPU"}


@pytest.mark.parametrize("library", ["from transformers import Trainer", "import accelerate"])
def test_a_reference_of_transformers_stays_off_xla(library: str, tmp_path: Path) -> None:
    code = f"{library}\n{TRAINS}"
    code += "accelerator = accelerate.Accelerator()\n" if "accelerate" in library else ""
    write(tmp_path, {"train.py": code})
    _, _, reference, target = _commands(tmp_path)
    assert reference == {"USE_TORCH_XLA": "0"} and target == {"PJRT_DEVICE": "CPU"}


def test_an_empty_or_strange_project_has_no_entry(tmp_path: Path) -> None:
    write(tmp_path, {"Makefile": "all:\n\techo hi\n", "pyproject.toml": "not toml [", "a.py": "x"})
    assert entries(tmp_path)[0] == []
