"""What a bundle says of machine and project: asked of programs that may not answer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from core.reference import facts

SMI = """\
#!/bin/sh
[ "$2" = "--format=csv,noheader" ] || exit 2
echo "NVIDIA A100-SXM4-80GB, 81920 MiB, 550.54.15"
printf 'NVIDIA A100\\033[31m-SXM4-80GB, 81920 MiB, 550.54.15\\n'
"""


def program(place: Path, name: str, text: str) -> Path:
    path = place / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_gpus_are_named_by_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "nvidia-smi", SMI)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    first = "NVIDIA A100-SXM4-80GB, 81920 MiB, 550.54.15"
    assert facts.gpus() == [first, first]


@pytest.mark.parametrize(
    "text", ["#!/bin/sh\nexit 9\n", "#!/bin/sh\nexec sleep 60\n", "no program"]
)
def test_a_driver_that_is_broken_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    program(tmp_path, "nvidia-smi", text)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(facts, "SMI_S", 0.2)
    assert facts.gpus() == []


def test_the_machine_has_a_cpu_with_cores_and_memory() -> None:
    found = facts.hardware()
    assert found.cpu and found.cores >= 1 and found.memory_mb > 100 and found.system


def test_packages_of_a_python() -> None:
    version, found = facts.packages(sys.executable)
    assert version == ".".join(map(str, sys.version_info[:3])) and found["click"]


def test_what_is_no_python_has_no_packages(tmp_path: Path) -> None:
    assert facts.packages("/no/such/python") == ("", {})
    assert facts.packages(str(program(tmp_path, "x", "#!/bin/sh\necho hello\n"))) == ("", {})


def test_lines_that_tell_nothing_are_no_kinship(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\nfrom torch import nn\n# a comment\nelse:\n\n")
    assert facts.lines_of(tmp_path) == ([], 0)
    assert facts.share_of([], tmp_path) is None


def test_the_share_is_of_the_lines_wherever_they_moved(tmp_path: Path) -> None:
    lines = [f"value_{i} = compute({i})" for i in range(20)]
    (tmp_path / "old").mkdir()
    (tmp_path / "new" / "package").mkdir(parents=True)
    (tmp_path / "new" / ".venv").mkdir()
    (tmp_path / "old" / "train.py").write_text("\n".join(lines))
    (tmp_path / "new" / "package" / "model.py").write_text(
        "\n".join("    " + x for x in lines[:15])
    )
    (tmp_path / "new" / ".venv" / "other.py").write_text("\n".join(lines))
    sample, count = facts.lines_of(tmp_path / "old")
    assert count == len(sample) == 20
    assert facts.share_of(sample, tmp_path / "new") == 0.75


def test_of_many_lines_a_sample_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("\n".join(f"value_{i} = {i}" for i in range(5000)))
    sample, count = facts.lines_of(tmp_path)
    assert (len(sample), count) == (facts.SAMPLE, 5000)
    assert facts.share_of(sample, tmp_path) == 1.0


def test_no_repository_has_no_commit(tmp_path: Path) -> None:
    assert facts.commit_of(tmp_path) == ("", False)
