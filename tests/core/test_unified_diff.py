"""The diff parser against diffs that git itself writes, and against broken ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.unified_diff import DiffLine, parse_diff, unquote


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    return tmp_path


def git(repo: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(repo), *args], check=True, capture_output=True, encoding="utf-8"
    )
    return done.stdout


def commit(repo: Path) -> None:
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "state", "--allow-empty")


def diff(repo: Path) -> str:
    git(repo, "add", "-A")
    return git(repo, "diff", "--cached", "-M")


def test_lines_carry_the_numbers_of_both_files(repo: Path) -> None:
    (repo / "a.py").write_text("".join(f"line {n}\n" for n in range(1, 41)))
    commit(repo)
    rows = [f"line {n}\n" for n in range(1, 41)]
    rows[4:5] = ["new 5a\n", "new 5b\n"]
    del rows[31]
    (repo / "a.py").write_text("".join(rows))
    (file,) = parse_diff(diff(repo))
    assert (file.path, file.status, file.added, file.removed) == ("a.py", "modified", 2, 2)
    assert [hunk.header for hunk in file.hunks] == ["@@ -2,7 +2,8 @@", "@@ -28,7 +29,6 @@"]
    first, second = file.hunks
    changed = [line for line in first.lines if line.sign != " "]
    assert changed == [
        DiffLine("-", "line 5", 5, None),
        DiffLine("+", "new 5a", None, 5),
        DiffLine("+", "new 5b", None, 6),
    ]
    assert first.lines[-1] == DiffLine(" ", "line 8", 8, 9)
    assert [line for line in second.lines if line.sign == "-"] == [
        DiffLine("-", "line 31", 31, None)
    ]
    assert second.section == "line 27"


def test_new_text_can_be_rebuilt_from_the_old_one(repo: Path) -> None:
    old = [f"{n % 7} x\n" for n in range(200)]
    new = [row for n, row in enumerate(old) if n % 11] + ["tail\n"]
    (repo / "a").write_text("".join(old))
    commit(repo)
    (repo / "a").write_text("".join(new))
    (file,) = parse_diff(diff(repo))
    rebuilt, at = [], 0
    for hunk in file.hunks:
        rebuilt += old[at : hunk.old_start - 1]
        at = hunk.old_start - 1
        for line in hunk.lines:
            if line.sign != "+":
                assert old[at] == line.text + "\n"
                assert line.old == at + 1
                at += 1
            if line.sign != "-":
                rebuilt.append(line.text + "\n")
                assert line.new == len(rebuilt)
    assert rebuilt + old[at:] == new


def test_added_deleted_renamed_mode_binary(repo: Path) -> None:
    (repo / "gone.py").write_text("x\n")
    (repo / "old name.py").write_text("".join(f"{n}\n" for n in range(50)))
    (repo / "run.sh").write_text("echo\n")
    (repo / "pic").write_bytes(b"\0\1\2")
    commit(repo)
    (repo / "gone.py").unlink()
    (repo / "old name.py").rename(repo / "new name.py")
    with (repo / "new name.py").open("a") as file:
        file.write("more\n")
    (repo / "run.sh").chmod(0o755)
    (repo / "pic").write_bytes(b"\0\3")
    (repo / "fresh.py").write_text("y\n")
    (repo / "empty.py").write_text("")
    found = {file.path: file for file in parse_diff(diff(repo))}
    assert {path: file.status for path, file in found.items()} == {
        "gone.py": "deleted",
        "new name.py": "renamed",
        "run.sh": "modified",
        "pic": "modified",
        "fresh.py": "added",
        "empty.py": "added",
    }
    assert found["gone.py"].new_path is None
    assert found["fresh.py"].old_path is None
    assert found["empty.py"].old_path is None
    assert found["new name.py"].old_path == "old name.py"
    assert found["new name.py"].similarity is not None
    assert found["new name.py"].similarity > 80
    assert found["new name.py"].added == 1
    assert found["run.sh"].mode_changed
    assert (found["run.sh"].old_mode, found["run.sh"].new_mode) == ("100644", "100755")
    assert found["pic"].binary
    assert not found["fresh.py"].mode_changed


def test_missing_newline_belongs_to_its_line(repo: Path) -> None:
    (repo / "a").write_text("one\ntwo")
    commit(repo)
    (repo / "a").write_text("one\ntwo\n")
    (file,) = parse_diff(diff(repo))
    assert file.hunks[0].lines == [
        DiffLine(" ", "one", 1, 1),
        DiffLine("-", "two", 2, None, newline=False),
        DiffLine("+", "two", None, 2),
    ]


def test_lines_that_look_like_headers_stay_lines(repo: Path) -> None:
    (repo / "a.sql").write_text("-- a comment\n++ b\nx\n")
    commit(repo)
    (repo / "a.sql").write_text("x\n-- other\n")
    (file,) = parse_diff(diff(repo))
    assert [(line.sign, line.text) for line in file.hunks[0].lines] == [
        ("-", "-- a comment"),
        ("-", "++ b"),
        (" ", "x"),
        ("+", "-- other"),
    ]


def test_names_with_unusual_bytes_are_unquoted(repo: Path) -> None:
    (repo / 'tab\there "q" ä.py').write_text("x\n")
    (file,) = parse_diff(diff(repo))
    assert file.path == 'tab\there "q" ä.py'


def test_separators_inside_a_line_do_not_split_it(repo: Path) -> None:
    (repo / "a").write_text("a\x0cb\u2028c\x85d\n", encoding="utf-8")
    (file,) = parse_diff(diff(repo))
    assert [line.text for line in file.hunks[0].lines] == ["a\x0cb\u2028c\x85d"]


def test_plain_diff_without_git_headers() -> None:
    text = "--- old/a.c\t2026-01-01\n+++ new/a.c\t2026-01-02\n@@ -1 +1,2 @@\n-x\n+y\n+z\n"
    (file,) = parse_diff(text)
    assert (file.old_path, file.new_path) == ("old/a.c", "new/a.c")
    assert (file.hunks[0].old_count, file.hunks[0].new_count) == (1, 2)
    assert (file.added, file.removed) == (2, 1)


def test_a_cut_hunk_is_told() -> None:
    text = "--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n-one\ndiff --git a/y b/y\nnew file mode 100644\n"
    first, second = parse_diff(text)
    assert first.removed == 1
    assert first.notes == ["A hunk is shorter than its header says."]
    assert (second.path, second.status) == ("y", "added")


def test_text_before_the_first_file_is_left_out() -> None:
    text = "From: someone\nSubject: x\n\n--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+one\n"
    (file,) = parse_diff(text)
    assert file.path == "x"
    assert file.notes == []


def test_nothing_is_no_file() -> None:
    assert parse_diff("") == []
    assert parse_diff("no diff at all\n") == []


@pytest.mark.parametrize(
    ("quoted", "plain"),
    [("plain", "plain"), (r'"a\303\244"', "aä"), (r'"a\tb\\c\""', 'a\tb\\c"'), ('"', '"')],
)
def test_unquote(quoted: str, plain: str) -> None:
    assert unquote(quoted) == plain


_PIECES = st.sampled_from(
    [
        "diff --git a/x b/x\n",
        "--- a/x\n",
        "+++ b/x\n",
        "@@ -1,2 +1,3 @@ f\n",
        "@@ -0,0 +9 @@\n",
        "+a\n",
        "-b\n",
        " c\n",
        "\\ No newline at end of file\n",
        "old mode 100644\n",
        "\n",
        "@@@\n",
        "rename from q\n",
        "rename to r\n",
        "similarity index 1000000000000000000000%\n",
        '"\\9',
    ]
)


@given(st.lists(st.one_of(_PIECES, st.text(max_size=8)), max_size=25))
def test_no_text_makes_it_fail_and_counts_agree(pieces: list[str]) -> None:
    for file in parse_diff("".join(pieces)):
        assert file.added == sum(line.sign == "+" for h in file.hunks for line in h.lines)
        assert file.removed == sum(line.sign == "-" for h in file.hunks for line in h.lines)
        assert isinstance(file.path, str)
