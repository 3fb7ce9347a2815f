"""The worktree: real git repositories, and the operator's own one stays as it was."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from core.workspace import Workspace, WorkspaceError


def git(place: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", "-c", "core.hooksPath=/dev/null", *args],
        cwd=place,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture
def session(tmp_path: Path) -> Path:
    place = tmp_path / "home" / "thing-1130-abcd"
    place.mkdir(parents=True)
    return place


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository of the operator's: a branch, a staged and an unstaged change, a hook."""
    place = tmp_path / "repo"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    (place / "train.py").write_text("lr = 1\n" + "".join(f"line {i}\n" for i in range(20)))
    (place / "data.bin").write_bytes(b"\0\1\2" * 50)
    (place / ".gitignore").write_text("secret.txt\n")
    (place / "secret.txt").write_text("not for git\n")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "first")
    for hook in ("post-checkout", "pre-commit", "reference-transaction", "post-index-change"):
        file = place / ".git" / "hooks" / hook
        file.write_text(f"#!/bin/sh\ntouch {place.parent}/HOOK-RAN\n")
        file.chmod(0o755)
    return place


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A project that is no repository."""
    place = tmp_path / "plain"
    (place / "pkg").mkdir(parents=True)
    (place / "train.py").write_text("lr = 1\n")
    (place / "pkg" / "__pycache__").mkdir()
    (place / "pkg" / "__pycache__" / "a.pyc").write_bytes(b"x")
    (place / "pkg" / "a.py").write_text("a = 1\n")
    return place


def standing(repo: Path) -> tuple[str, ...]:
    """Everything of a repository that is the operator's own."""
    return (
        (repo / ".git" / "HEAD").read_text(),
        git(repo, "for-each-ref", "refs/heads", "refs/tags", "refs/remotes", "refs/stash"),
        (repo / ".git" / "index").read_bytes().hex(),
        git(repo, "status", "--porcelain"),
        git(repo, "log", "--oneline", "HEAD"),
        (repo / ".git" / "config").read_text(),
    )


def test_the_operators_repository_stays_as_it_was(repo: Path, session: Path) -> None:
    (repo / "train.py").write_text("dirty\n")
    (repo / "new.py").write_text("staged\n")
    git(repo, "add", "new.py")
    before = standing(repo)
    work = Workspace.create(repo, session)
    work.edit("train.py", "lr = 1", "lr = 2")
    work.snapshot("edit")
    work.write("more.py", "x\n")
    second = work.snapshot("write")
    work.rollback(work.baseline)
    work.snapshot("rollback")
    assert second is not None
    assert standing(repo) == before
    assert not (repo.parent / "HOOK-RAN").exists()
    refs = git(repo, "for-each-ref", "--format=%(refname)", "refs/pilotage").split()
    assert refs == [f"refs/pilotage/{session.name}/{n}" for n in range(4)]
    assert (repo / "train.py").read_text() == "dirty\n"


def test_uncommitted_changes_are_not_in_the_baseline_and_that_is_said(
    repo: Path, session: Path
) -> None:
    (repo / "train.py").write_text("dirty\n")
    work = Workspace.create(repo, session)
    assert work.read("train.py").startswith("lr = 1\n")
    assert "uncommitted changes of 1 file there" in work.note and "train.py" in work.note
    assert work.baseline_snapshot().patch_note == work.note
    assert work.baseline == git(repo, "rev-parse", "HEAD^{tree}").strip()


def test_a_project_without_git_gets_a_private_copy(plain: Path, session: Path) -> None:
    work = Workspace.create(plain, session)
    assert work.private and not (plain / ".git").exists()
    assert "private copy" in work.note
    assert work.read("pkg/a.py") == "a = 1\n"
    assert not (work.root / "pkg" / "__pycache__").exists()
    work.edit("pkg/a.py", "a = 1", "a = 2")
    snapshot = work.snapshot("edit")
    assert snapshot is not None and snapshot.files[0]["path"] == "pkg/a.py"
    assert (plain / "pkg" / "a.py").read_text() == "a = 1\n"


def test_a_private_copy_has_data_and_links_what_is_large(
    plain: Path, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.workspace.LINK_MB", 0.001)
    for name, size in (("output/code.py", 10), ("x.npy", 10), ("data/big #1.npy", 2000)):
        (plain / name).parent.mkdir(exist_ok=True)
        (plain / name).write_text("0" * size)
    work = Workspace.create(plain, session)
    for root in (work.root, work.reference_root):
        assert (root / "output" / "code.py").is_file() and (root / "x.npy").is_file()
        assert (root / "data" / "big #1.npy").is_symlink()
        assert (root / "data" / "big #1.npy").read_text() == "0" * 2000
    assert "1 file of more than" in work.note
    assert work.snapshot("outside") is None
    (work.root / "output" / "code.py").write_text("changed")
    (work.root / "output" / "new.txt").write_text("of a run")
    snapshot = work.snapshot("outside")
    assert snapshot is not None
    assert [f["path"] for f in snapshot.files] == ["output/code.py"]


def test_a_copy_on_request_leaves_the_repository_alone(repo: Path, session: Path) -> None:
    before = standing(repo)
    work = Workspace.create(repo, session, copy=True)
    work.edit("train.py", "lr = 1", "lr = 2")
    assert work.snapshot("edit") is not None
    assert standing(repo) == before
    assert git(repo, "for-each-ref", "refs/pilotage") == ""


def test_a_project_below_the_top_of_its_repository(repo: Path, session: Path) -> None:
    (repo / "sub").mkdir()
    (repo / "sub" / "run.py").write_text("one\n")
    git(repo, "add", "sub")
    git(repo, "commit", "-qm", "sub", "--no-verify")
    (repo / "sub" / "secret.txt").write_text("data that git does not hold")
    work = Workspace.create(repo / "sub", session, link=["secret.txt"])
    assert work.snapshot("outside") is None and work.read("../train.py")
    assert (work.reference_cwd / "secret.txt").is_symlink()
    assert work.cwd == session / "worktree" / "sub"
    assert work.reference_cwd == session / "reference" / "sub"
    work.edit("run.py", "one", "two")
    work.edit("../train.py", "lr = 1", "lr = 2")
    patch = "--- a/run.py\n+++ b/run.py\n@@ -1 +1 @@\n-two\n+three\n"
    assert work.apply_patch(patch) == ["sub/run.py"]
    snapshot = work.snapshot("edit")
    assert snapshot is not None
    assert [f["path"] for f in snapshot.files] == ["sub/run.py", "train.py"]
    assert work.read("run.py") == "three\n"


def test_snapshots_have_a_patch_from_the_baseline_and_one_of_the_step(
    repo: Path, session: Path
) -> None:
    work = Workspace.create(repo, session)
    assert work.snapshot("nothing") is None
    work.edit("train.py", "lr = 1", "lr = 2")
    first = work.snapshot("edit", "c1")
    work.edit("train.py", "line 19", "line XIX")
    second = work.snapshot("edit", "c2")
    assert first is not None and second is not None
    assert first.parent == work.baseline and second.parent == first.tree
    assert first.call_id == "c1" and first.cause == "edit"
    assert "+lr = 2" in second.patch and "+line XIX" in second.patch
    assert "+lr = 2" not in second.step_patch and "+line XIX" in second.step_patch
    assert second.files == [{"path": "train.py", "added": 2, "removed": 2, "status": "modified"}]
    assert second.patch_note == ""


def test_binary_rename_mode_and_bytes_that_are_no_text(repo: Path, session: Path) -> None:
    work = Workspace.create(repo, session)
    (work.root / "data.bin").write_bytes(b"\0\1\3" * 60)
    (work.root / "train.py").rename(work.root / "main.py")
    (work.root / "latin.txt").write_bytes(b"caf\xe9 \x1b[31m\n")
    (work.root / ".gitignore").chmod(0o755)
    (work.root / "link").symlink_to("main.py")
    (work.root / os.fsdecode(b"n\xe4me")).write_text("x\n")
    snapshot = work.snapshot("outside")
    assert snapshot is not None
    files = {f["path"]: f for f in snapshot.files}
    assert files["data.bin"] | {"path": ""} == {
        "path": "", "added": None, "removed": None, "status": "modified",
    }  # fmt: skip
    assert files["main.py"]["status"] == "renamed" and files["main.py"]["old_path"] == "train.py"
    assert files[".gitignore"]["status"] == "mode changed"
    assert files[".gitignore"]["mode"] == "644 -> 755"
    assert files["link"]["status"] == "added"
    assert files["n\ufffdme"]["added"] == 1
    assert "caf\ufffd" in snapshot.patch
    snapshot.patch.encode("utf-8")  # storable


def test_a_huge_diff_is_cut_and_says_so(repo: Path, session: Path) -> None:
    work = Workspace.create(repo, session)
    work.write("big.txt", "0123456789\n" * 60_000)
    snapshot = work.snapshot("write")
    assert snapshot is not None
    assert len(snapshot.patch) <= 400_000 and "cut after" in snapshot.patch_note
    assert snapshot.files == [{"path": "big.txt", "added": 60_000, "removed": 0, "status": "added"}]


def test_outputs_of_runs_are_no_change_but_new_source_is(plain: Path, session: Path) -> None:
    work = Workspace.create(plain, session, outputs=["figures/"])
    for name in ("runs/base/result.json", "figures/a.svg", "model.pt", "pkg/__pycache__/b.pyc"):
        file = work.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    assert work.snapshot("outside") is None
    (work.root / "odd [name]!.dat").write_text("left by a run")
    (work.root / "slipped_in.py").write_text("evil = 1\n")
    assert work.note_outputs() == ["odd [name]!.dat"]
    snapshot = work.snapshot("outside")
    assert snapshot is not None
    assert [f["path"] for f in snapshot.files] == ["slipped_in.py"]


def test_what_the_agent_writes_counts_though_a_pattern_ignores_it(
    plain: Path, session: Path
) -> None:
    work = Workspace.create(plain, session)
    work.write("logs/setup.py", "x = 1\n")
    snapshot = work.snapshot("write")
    assert snapshot is not None and snapshot.files[0]["path"] == "logs/setup.py"


def test_edits_match_exactly_once_or_change_nothing(plain: Path, session: Path) -> None:
    work = Workspace.create(plain, session)
    work.write("a.txt", "one two one\n")
    with pytest.raises(WorkspaceError, match=r"occurs 2 times in a\.txt"):
        work.edit("a.txt", "one", "1")
    with pytest.raises(WorkspaceError, match=r"does not occur in a\.txt"):
        work.edit("a.txt", "three", "3")
    with pytest.raises(WorkspaceError, match="text to search for"):
        work.edit("a.txt", "", "3")
    with pytest.raises(WorkspaceError, match=r"no file b\.txt"):
        work.edit("b.txt", "one", "1")
    assert work.read("a.txt") == "one two one\n"
    (work.root / "dos.txt").write_bytes(b"a\r\nb\r\nc\r\n")
    work.edit("dos.txt", "a\nb\n", "A\nB\n")
    assert (work.root / "dos.txt").read_bytes() == b"A\r\nB\r\nc\r\n"
    (work.root / "latin.txt").write_bytes(b"caf\xe9 one")
    with pytest.raises(WorkspaceError, match="not UTF-8"):
        work.edit("latin.txt", "one", "1")
    assert (work.root / "latin.txt").read_bytes() == b"caf\xe9 one"


@pytest.mark.parametrize(
    "path",
    ["../out.txt", "/etc/passwd", "~/x", "pkg/../../out.txt", "leave/x", "leave", "leaveabs",
     ".git", ".git/config", "pkg/.GIT/hooks/x", "", "a\0b", "loop/x"],
)  # fmt: skip
def test_no_path_leaves_the_worktree(plain: Path, session: Path, path: str) -> None:
    work = Workspace.create(plain, session)
    (work.root / "leave").symlink_to("../..")
    (work.root / "leaveabs").symlink_to("/etc/passwd")
    (work.root / "loop").symlink_to("loop")
    for act in (
        lambda: work.write(path, "x"),
        lambda: work.edit(path, "root", "x"),
        lambda: work.read(path),
    ):
        with pytest.raises(WorkspaceError):
            act()
    assert not (session / "out.txt").exists()


@pytest.mark.parametrize(
    "patch",
    [
        "--- a/../out.txt\n+++ b/../out.txt\n@@ -0,0 +1 @@\n+x\n",
        (
            "diff --git a/.git/hooks/x b/.git/hooks/x\nnew file mode 100755\n--- /dev/null\n"
            "+++ b/.git/hooks/x\n@@ -0,0 +1 @@\n+x\n"
        ),
        (
            "diff --git a/leave/x b/leave/x\nnew file mode 100644\n--- /dev/null\n"
            "+++ b/leave/x\n@@ -0,0 +1 @@\n+x\n"
        ),
        "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-other\n+x\n",
        "this is no patch",
    ],
)
def test_a_bad_patch_changes_nothing(plain: Path, session: Path, patch: str) -> None:
    work = Workspace.create(plain, session)
    (work.root / "leave").symlink_to("..")
    work.snapshot("outside")
    with pytest.raises(WorkspaceError):
        work.apply_patch(patch)
    assert work.snapshot("patch") is None
    assert not (session / "x").exists() and not (session / "out.txt").exists()


def test_a_patch_may_make_rename_and_delete(repo: Path, session: Path) -> None:
    work = Workspace.create(repo, session)
    patch = (
        "diff --git a/train.py b/main.py\nsimilarity index 90%\nrename from train.py\n"
        "rename to main.py\n--- a/train.py\n+++ b/main.py\n@@ -1,2 +1,2 @@\n-lr = 1\n"
        "+lr = 3\n line 0\n"
        "diff --git a/new.py b/new.py\nnew file mode 100644\n--- /dev/null\n+++ b/new.py\n"
        "@@ -0,0 +1 @@\n+n = 1"
    )
    assert sorted(set(work.apply_patch(patch)) - {"train.py"}) == ["main.py", "new.py"]
    assert work.read("main.py").startswith("lr = 3\n")


def test_search_gives_lines(plain: Path, session: Path) -> None:
    work = Workspace.create(plain, session)
    assert work.search("a = [0-9]") == ["pkg/a.py:1:a = 1"]
    assert work.search("nothing-like-it") == []
    with pytest.raises(WorkspaceError, match="search"):
        work.search("(")


def test_rollback_brings_back_and_keeps_outputs(plain: Path, session: Path) -> None:
    work = Workspace.create(plain, session)
    work.write("extra.py", "x\n")
    work.edit("train.py", "lr = 1", "lr = 2")
    first = work.snapshot("edit")
    (work.root / "runs").mkdir()
    (work.root / "runs" / "out.json").write_text("{}")
    assert first is not None
    work.rollback(work.baseline)
    assert work.read("train.py") == "lr = 1\n" and not (work.root / "extra.py").exists()
    assert (work.root / "runs" / "out.json").exists()
    back = work.snapshot("rollback")
    assert back is not None and back.tree == work.baseline and back.files == []
    work.rollback(first.tree)
    assert work.read("train.py") == "lr = 2\n" and (work.root / "extra.py").exists()


def test_reopening_goes_on_counting(repo: Path, session: Path) -> None:
    work = Workspace.create(repo, session)
    work.edit("train.py", "lr = 1", "lr = 2")
    first = work.snapshot("edit")
    (session / "index.lock").write_text("left by a git that was killed")
    again = Workspace.reopen(repo, session)
    assert first is not None
    assert (again.tree, again.baseline) == (first.tree, work.baseline)
    assert again.snapshot("outside") is None
    again.edit("train.py", "lr = 2", "lr = 3")
    second = again.snapshot("edit")
    assert second is not None and second.parent == first.tree
    assert len(git(repo, "for-each-ref", "refs/pilotage").splitlines()) == 3


def test_a_snapshot_that_did_not_reach_the_log_is_made_again(repo: Path, session: Path) -> None:
    work = Workspace.create(repo, session)
    work.edit("train.py", "lr = 1", "lr = 2")
    first = work.snapshot("edit")
    work.edit("train.py", "lr = 2", "lr = 3")
    lost = work.snapshot("edit")  # a crash here: ref written, event not
    again = Workspace.reopen(repo, session, first)
    second = again.snapshot("cut off")
    assert first is not None and second is not None and lost is not None
    assert (second.tree, second.parent) == (lost.tree, first.tree)
    assert "-lr = 2\n+lr = 3" in second.step_patch
    assert len(git(repo, "for-each-ref", "refs/pilotage").splitlines()) == 4


def test_a_creation_that_was_cut_off_is_done_again(plain: Path, repo: Path, session: Path) -> None:
    for project in (plain, repo):
        place = session / project.name
        place.mkdir()
        Workspace.create(project, place)
        (place / "worktree" / "half.py").write_text("half\n")
        again = Workspace.create(project, place)
        assert not (again.root / "half.py").exists()
        assert again.snapshot("outside") is None


def test_reopening_what_is_gone_is_a_sentence(repo: Path, session: Path) -> None:
    import shutil

    Workspace.create(repo, session)
    shutil.rmtree(session / "worktree")
    with pytest.raises(WorkspaceError, match="is gone"):
        Workspace.reopen(repo, session)
    shutil.rmtree(repo)
    repo.mkdir()
    with pytest.raises(WorkspaceError, match=r"repository of .* is gone"):
        Workspace.reopen(repo, session)


def test_a_tampered_reference_is_seen(repo: Path, session: Path) -> None:
    work = Workspace.create(repo, session)
    assert work.reference_changes() == []
    (work.reference_root / "runs").mkdir()  # what the reference run writes is no tampering
    (work.reference_root / "runs" / "x.json").write_text("{}")
    assert work.reference_changes() == []
    (work.reference_root / "train.py").write_text("lr = 100\n")
    assert work.reference_changes() == ["train.py"]


def test_what_a_reference_run_has_written_anew_is_put_back(repo: Path, session: Path) -> None:
    (repo / "model.pt").write_bytes(b"pretrained")  # the project keeps a result of its own
    git(repo, "add", "-f", "model.pt")
    git(repo, "commit", "-qm", "model")
    work = Workspace.create(repo, session)
    kept = work.reference_root / "model.pt"
    assert kept.read_bytes() == b"pretrained"
    kept.write_bytes(b"trained")
    assert work.reference_changes() == []
    assert kept.read_bytes() == b"pretrained"
    kept.unlink()
    (work.reference_root / "train.py").write_text("lr = 100\n")
    assert work.reference_changes() == ["train.py"]
    assert kept.read_bytes() == b"pretrained"


def test_a_tampered_git_file_does_not_lead_elsewhere(repo: Path, session: Path) -> None:
    work = Workspace.create(repo, session)
    evil = session.parent / "evil"
    evil.mkdir()
    git(evil, "init", "-q")
    (work.root / ".git").write_text(f"gitdir: {evil}/.git\n")
    work.edit("train.py", "lr = 1", "lr = 2")
    assert work.snapshot("edit") is not None
    assert git(evil, "for-each-ref") == ""


def test_data_that_git_does_not_hold_can_be_linked(repo: Path, session: Path) -> None:
    with (repo / ".gitignore").open("a") as file:
        file.write("data/\n")
    (repo / "data").mkdir()
    (repo / "data" / "train.csv").write_text("1,2\n")
    work = Workspace.create(repo, session, link=["data"])
    assert (work.root / "data" / "train.csv").read_text() == "1,2\n"
    assert (work.reference_root / "data" / "train.csv").is_file()
    assert work.snapshot("outside") is None
    with pytest.raises(WorkspaceError, match="leads out"):
        work.write("data/train.csv", "cheat")
    assert stat.S_ISLNK((work.root / "data").lstat().st_mode)


def test_a_repository_within_is_said_and_never_stops_the_session(repo: Path, session: Path) -> None:
    """Git refuses to add a file of a nested repository, and refused every snapshot after that."""
    inner = repo / "vendor"
    inner.mkdir()
    (inner / "lib.py").write_text("x = 1\n")
    git(inner, "init", "--quiet")
    git(inner, "add", "-A")
    git(inner, "commit", "--quiet", "-m", "inner")
    git(repo, "add", "vendor")
    git(repo, "commit", "--quiet", "-m", "a gitlink, as a submodule is")
    files = Workspace.create(repo, session)
    assert "git repositories within its own (vendor)" in files.note
    with pytest.raises(WorkspaceError, match="vendor/lib.py lies in a git repository of its own"):
        files.write("vendor/lib.py", "x = 2\n")
    patch = "--- /dev/null\n+++ b/vendor/new.py\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(WorkspaceError, match="lies in a git repository of its own"):
        files.apply_patch(patch)
    # The agent clones something after it wrote there.
    files.write("third/own.py", "x = 1\n")
    assert files.snapshot("edit") is not None
    git(files.root / "third", "init", "--quiet")
    git(files.root / "third", "add", "-A")
    git(files.root / "third", "commit", "--quiet", "-m", "inner")
    files.snapshot("shell")
    files.write("train.py", "print(2)\n")
    after = files.snapshot("edit")
    assert after is not None and "train.py" in str(after.files)


def test_a_worktree_that_a_run_deleted_is_said_to_be_gone(plain: Path, session: Path) -> None:
    files = Workspace.create(plain, session, copy=True)
    files.root.rename(session / "elsewhere")
    with pytest.raises(WorkspaceError, match=r"worktree .* is gone.*start a new session"):
        files.snapshot("outside")
