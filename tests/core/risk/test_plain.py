"""Launchers, requirements and settings are scanned line by line."""

from __future__ import annotations

import pytest

from core.risk.plain import kind_of, scan_plain

CASES = [
    ("run.sh", "CUDA_VISIBLE_DEVICES=0 python train.py", {"gpu-setting"}),
    ("run.sh", "# CUDA_VISIBLE_DEVICES=0 python train.py", set()),
    ("run.sh", "nvidia-smi", {"gpu-setting"}),
    ("run.sh", "#SBATCH --gres=gpu:4", {"gpu-setting"}),
    ("run.sh", "torchrun --nproc_per_node 4 train.py --fp16", {"launcher", "fp16-setting"}),
    ("run.sh", "accelerate launch train.py --mixed_precision fp16", {"launcher", "fp16-setting"}),
    ("run.sh", "python train.py --amp false", set()),
    ("run.sh", "python train.py --device cuda", {"gpu-setting"}),
    ("run.sh", "pip install flash-attn==2.3", {"cuda-package"}),
    ("run.sh", "python cuda_tools/prepare.py", set()),
    ("requirements.txt", "torch==1.8.1+cu111", {"pinned-library", "cuda-package"}),
    ("requirements.txt", "torch>=2.1", set()),
    ("requirements.txt", "torch==2.1.0", {"pinned-library"}),
    ("requirements.txt", "# torch==2.1.0", set()),
    ("requirements.txt", "--extra-index-url https://x/whl/cu118", {"cuda-package"}),
    ("requirements.txt", "bitsandbytes", {"cuda-package"}),
    ("requirements.txt", "nvidia-cublas-cu12==12.1", {"cuda-package"}),
    ("requirements.txt", "transformers==4.18.0", {"pinned-library"}),
    ("requirements.txt", "apexcharts", set()),
    ("environment.yml", "  - cudatoolkit=11.3", {"cuda-package"}),
    ("environment.yml", "  - python=3.8", {"old-python"}),
    ("environment.yml", "  - python=3.11", set()),
    ("pyproject.toml", 'requires-python = ">=3.7,<3.10"', {"old-python"}),
    ("pyproject.toml", 'requires-python = ">=3.9"', set()),
    ("setup.cfg", "python_requires = >=3.7,<3.10", {"old-python"}),
    ("conf/a.yaml", "device: cuda:0", {"gpu-setting"}),
    ("conf/a.yaml", "  fp16: true", {"fp16-setting"}),
    ("conf/a.yaml", "  fp16: false", set()),
    ("conf/a.yaml", "trainer.accelerator: gpu", {"gpu-setting"}),
    ("conf/a.yaml", "# device: cuda", set()),
    ("conf/a.yaml", "precision: 16", {"fp16-setting"}),
    ("conf/a.yaml", "precision: 160", set()),
    ("ds.json", '  "gpus": 8,', {"gpu-setting"}),
    ("Dockerfile", "FROM nvidia/cuda:11.8.0-runtime", {"cuda-package"}),
    ("Dockerfile", "FROM python:3.11", set()),
]


@pytest.mark.parametrize(("path", "line", "rules"), CASES)
def test_lines(path: str, line: str, rules: set[str]) -> None:
    assert {found.rule.name for found in scan_plain(path, line)} == rules


def test_other_files_are_left_alone() -> None:
    assert kind_of("data/notes.txt") == kind_of("a.bin") == kind_of("README.md") == ""
    assert list(scan_plain("README.md", "nvidia-smi")) == []
