"""A bundle of a stranger's: a sentence for whatever is wrong with it, and nothing is executed."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import stat
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.reference.manifest import BundleError
from core.reference.opening import Bundle
from tests.core.reference.making import edited, make_bundle, rehash, reseal, rewrite


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundle"))


@pytest.fixture
def bundle(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path / "x.pilotage"))


def use(path: Path, place: Path) -> None:
    """Everything that is done with a bundle."""
    with Bundle(path) as bundle:
        bundle.check()
        for run in bundle.manifest.captured:
            bundle.extract(run, place)


def refused(path: Path) -> str:
    place = path.parent / "extracted"
    with pytest.raises(BundleError) as caught:
        use(path, place)
    assert not place.exists()
    text = str(caught.value)
    assert str(path) in text and text.endswith(".") and "\n" not in text
    return text


def test_what_was_written_is_read(made: Path, tmp_path: Path) -> None:
    with Bundle(made) as bundle:
        bundle.check()
        assert [(r.purpose, r.of) for r in bundle.manifest.runs] == [
            ("reference", ""),
            ("parity", "reference"),
        ]
        kinds = [body.KIND for _, body, _ in bundle.events(bundle.manifest.runs[0])]
        assert kinds[0] == "run.started" and kinds[-1] == "run.result"
        assert bundle.manifest.hardware.gpu == ["a GPU"]
        bundle.extract(bundle.manifest.runs[1], tmp_path / "here")
    names = sorted(p.name for p in (tmp_path / "here" / "rank0").iterdir())
    assert names == ["forward.safetensors", "index.json", "weights.safetensors"]


def test_two_bundles_of_the_same_runs_are_the_same_to_the_byte(tmp_path: Path) -> None:
    a, b = (make_bundle(tmp_path / n) for n in ("a", "b"))

    def members(path: Path) -> dict[str, bytes]:
        with zipfile.ZipFile(path) as archive:
            names = [n for n in archive.namelist() if n.startswith("capture")]
            return {name: archive.read(name) for name in names}

    assert members(a) == members(b)


@settings(deadline=None, max_examples=120)
@given(data=st.data())
def test_no_flipped_byte_goes_unseen(made: Path, data: st.DataObject) -> None:
    content = bytearray(made.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path = made.parent / "flipped.pilotage"
    path.write_bytes(content)
    refused(path)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_no_cut_goes_unseen(made: Path, data: st.DataObject) -> None:
    content = made.read_bytes()
    size = data.draw(st.integers(0, len(content) - 1))
    path = made.parent / "cut.pilotage"
    path.write_bytes(content[:size])
    refused(path)


@settings(deadline=None, max_examples=60)
@given(content=st.binary(max_size=400), begin=st.sampled_from([b"", b"PK\x03\x04", b"PK\x05\x06"]))
@example(b"", b"")
def test_any_bytes_are_a_sentence(made: Path, content: bytes, begin: bytes) -> None:
    path = made.parent / "any.pilotage"
    path.write_bytes(begin + content)
    refused(path)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(deadline=None, max_examples=80)
@given(key=st.sampled_from([
    "project", "hardware", "runs", "members", "K", "minutes", "seeds", "packages", "format", "env",
    "metric", "time", "budget_mb", "cuda_on_cpu",
]), value=_JSON)  # fmt: skip
def test_a_forged_manifest_is_read_or_refused(made: Path, key: str, value: object) -> None:
    """Sealed as it should be: only its values are nonsense."""
    path = made.parent / "forged.pilotage"
    shutil.copy(made, path)

    def change(name: str, content: bytes) -> bytes:
        if name != "manifest.json":
            return content
        return json.dumps({**json.loads(content), key: value}).encode()

    rewrite(path, change)
    with contextlib.suppress(BundleError):
        use(path, made.parent / "forged")
    shutil.rmtree(made.parent / "forged", ignore_errors=True)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "There is no bundle" in refused(tmp_path / "none.pilotage")


def test_a_directory_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="can't be read"):
        Bundle(tmp_path)


def test_a_pipe_that_nobody_writes_to_and_a_device_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.pilotage")
    for path in (tmp_path / "x.pilotage", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(BundleError, match="it is a pipe or a device"):
            Bundle(path)


def test_the_records_of_all_runs_are_bounded_where_it_is_read_and_where_it_is_made(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as bounds:
        bounds.setattr("core.reference.opening.MAX_ALL_RECORDS", 1000)
        assert "MB of records of runs, which no bundle has" in refused(made)
        bounds.setattr("core.reference.bundle.MAX_ALL_RECORDS", 1000)
        with pytest.raises(BundleError, match="which a bundle does not hold"):
            make_bundle(tmp_path)
    assert not (tmp_path / "made.pilotage").exists()


def test_another_zip_is_no_bundle(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert "'readme.txt', which no bundle has" in refused(path)


def test_no_zip(tmp_path: Path) -> None:
    path = tmp_path / "x.pilotage"
    path.write_bytes(pickle.dumps({"a": 1}) * 50)
    assert "it is not a zip file" in refused(path)


def test_a_cut_bundle_says_so(bundle: Path) -> None:
    bundle.write_bytes(bundle.read_bytes()[:-30])
    assert "is cut off: its last bytes" in refused(bundle)


@pytest.mark.parametrize("seal", [True, False])
def test_a_newer_version_says_so_before_anything_else(bundle: Path, seal: bool) -> None:
    def newer(name: str, content: bytes) -> bytes:
        if name != "manifest.json":
            return content
        return json.dumps({**json.loads(content), "format": 2, "pilotage": "9.1"}).encode()

    rewrite(bundle, newer, seal)
    text = refused(bundle)
    assert "made by a newer version of Pilotage (9.1): its format is 2" in text


@pytest.mark.parametrize("seal", [True, False])
@pytest.mark.parametrize(
    "member", ["runs/1.jsonl", "capture/2/rank0/weights.safetensors", "capture/2/rank0/index.json"]
)
def test_a_wrong_hash_names_the_member(bundle: Path, member: str, seal: bool) -> None:
    def change(name: str, content: bytes) -> bytes:
        return content.replace(b"0", b"1") if name == member else content

    rewrite(bundle, change, seal)
    text = refused(bundle)
    assert f"{member} is not what was recorded" in text


def test_a_missing_member_is_named(bundle: Path) -> None:
    rewrite(bundle, lambda n, c: None if n == "runs/2.jsonl" else c)
    assert "has no runs/2.jsonl, which its manifest speaks of" in refused(bundle)


def test_without_a_manifest(bundle: Path) -> None:
    rewrite(bundle, lambda n, c: None if n == "manifest.json" else c)
    assert "no reference bundle: it has no manifest.json" in refused(bundle)


def test_a_seal_that_is_gone(bundle: Path) -> None:
    rewrite(bundle, lambda n, c: c, seal=False)
    assert "its seal does not fit" in refused(bundle)


def _add(path: Path, info: zipfile.ZipInfo, content: bytes = b"x") -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(info, content)
    reseal(path)


@pytest.mark.parametrize(
    "name",
    [
        "../evil.json",
        "/etc/passwd",
        "capture/2/rank0/../../../../evil.safetensors",
        "capture/2/rank0/payload.pkl",
        "capture\\2\\rank0\\x.safetensors",
        "runs/1.jsonl\n",
        "capture/2/rank0/",
    ],
)
def test_names_that_no_bundle_has(bundle: Path, name: str) -> None:
    _add(bundle, zipfile.ZipInfo(name))
    assert "which no bundle has" in refused(bundle)
    assert not list(bundle.parent.glob("evil*"))


def test_a_link_is_no_member(bundle: Path) -> None:
    info = zipfile.ZipInfo("capture/2/rank0/extra.safetensors")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    _add(bundle, info, b"/etc/passwd")
    assert "is no plain file" in refused(bundle)


def test_an_unknown_member(bundle: Path) -> None:
    _add(bundle, zipfile.ZipInfo("capture/2/rank0/extra.safetensors"))
    assert "of which its manifest knows nothing" in refused(bundle)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_twice(bundle: Path) -> None:
    _add(bundle, zipfile.ZipInfo("runs/1.jsonl"))
    assert "twice" in refused(bundle)


def test_a_member_that_unpacks_to_more_than_it_may(bundle: Path) -> None:
    with zipfile.ZipFile(bundle, "a") as archive:
        name = "capture/9/rank0/index.json"
        archive.writestr(name, b"\n" * (65 << 20), zipfile.ZIP_DEFLATED, 1)
    reseal(bundle)
    assert bundle.stat().st_size < 1 << 20
    assert "which is more than it may be" in refused(bundle)


def test_compressed_tensors_are_refused(bundle: Path) -> None:
    name = "capture/2/rank0/extra.safetensors"
    with zipfile.ZipFile(bundle, "a") as archive:
        archive.writestr(name, b"\0" * 1_000_000, zipfile.ZIP_DEFLATED)
    reseal(bundle)
    assert "is compressed" in refused(bundle)


def test_members_that_overlap(bundle: Path) -> None:
    """The small zip that unpacks to petabytes: every entry points to the same bytes."""
    content = bytearray(bundle.read_bytes())
    at = content.index(b"PK\x01\x02")
    first = struct.unpack_from("<I", content, at + 42)
    second = content.index(b"PK\x01\x02", at + 4)
    struct.pack_into("<I", content, second + 42, *first)
    bundle.write_bytes(content)
    reseal_in_place(bundle)
    text = refused(bundle)
    assert "overlap" in text or "damaged" in text


def reseal_in_place(path: Path) -> None:
    from core.reference.bundle import DIGEST, digest_of

    with open(path, "r+b") as file:
        size = file.seek(0, 2)
        digest = digest_of(file, size - DIGEST)
        file.seek(size - DIGEST)
        file.write(digest.hexdigest().encode())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"not json\n", "a line that is no event"),
        (b"[1]\n", "a line that is no event"),
        (b'{"kind": "run.output", "v": 1, "at_us": -4, "payload": {}}\n', "no event"),
        (b'{"kind": "run.output", "v": 1, "at_us": 4, "payload": {"lines": 3}}\n', "can't be read"),
        (b'{"kind": "run.ended", "v": 1, "at_us": 4, "payload": {"reason": "x"}}\n', "one run"),
        (b'{"kind": "run.ended"', "is cut off"),
        (b"[" * 100_000 + b"\n", "a line that is no event"),
    ],
)
def test_events_that_are_none(bundle: Path, line: bytes, says: str) -> None:
    rehash(bundle, lambda n, c: c + line if n == "runs/1.jsonl" else c)
    assert says in refused(bundle)


def test_kinds_of_a_later_release_are_passed_over(bundle: Path) -> None:
    line = b'{"kind": "run.dreamt", "v": 1, "at_us": 4, "payload": {}}\n'
    rehash(bundle, lambda n, c: c + line if n == "runs/1.jsonl" else c)
    use(bundle, bundle.parent / "extracted")


@pytest.mark.parametrize("kind", ["agent.claimed", "session.opened", "check.evaluated"])
def test_only_what_a_run_does_comes_out(bundle: Path, kind: str) -> None:
    """A bundle can't put a verdict, a claim or a word of the operator's into a session."""
    row = {"kind": kind, "v": 1, "at_us": 1, "payload": {"level": 3, "check": "L1.start"}}
    line = json.dumps(row).encode() + b"\n"
    rehash(bundle, lambda n, c: c + line if n == "runs/1.jsonl" else c)
    with Bundle(bundle) as opened:
        kinds = {body.KIND for _, body, _ in opened.events(opened.manifest.runs[0])}
    assert kind not in kinds


def test_a_run_that_is_none_of_the_reference(bundle: Path) -> None:
    def change(name: str, content: bytes) -> bytes:
        return content.replace(b'"purpose":"reference"', b'"purpose":"attempt"')

    rehash(bundle, change)
    assert "is of another run than its manifest says" in refused(bundle)


def _header(entries: dict[str, object], data: bytes = b"\0" * 16) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(start: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff" * 8 + b"{}", "its header is cut off"),
        (b"", "its header is cut off"),
        (struct.pack("<Q", 3) + b"{a}", "its header is not JSON"),
        (struct.pack("<Q", 2) + b"[]", "its header is no object"),
        (_header({"a": entry(0, 32, [8])}), "lies outside of the file"),
        (_header({"a": entry(0, 8, [4])}), "lies outside of the file"),
        (_header({"a": entry(0, 8, [2]), "b": entry(4, 12, [2])}), "overlaps another"),
        (_header({"a": entry(0, 8, [2], "PICKLE")}), "a dtype that is not known"),
        (_header({"a": entry(0, 8, [-2])}), "is not described as one"),
        (_header({"a": [0, 8]}), "is not described as one"),
    ],
)
def test_files_that_are_no_tensors(bundle: Path, content: bytes, says: str) -> None:
    rehash(bundle, lambda n, c: content if n.endswith("weights.safetensors") else c)
    assert says in refused(bundle)


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"format": 2}', b"[" * 100_000])
def test_an_index_that_is_none(bundle: Path, content: bytes) -> None:
    rehash(bundle, lambda n, c: content if n.endswith("index.json") else c)
    refused(bundle)


def test_hostile_words_are_cleaned(tmp_path: Path) -> None:
    from core.reference.wording import as_json, describe

    path = make_bundle(
        tmp_path, title="\x1b[31mred\x1b[0m\x07", change=edited(command="a\x1b]0;b\x07")
    )
    with Bundle(path) as bundle:
        assert "\x1b" not in describe(as_json(bundle)) and "\x07" not in describe(as_json(bundle))


def test_a_bundle_without_tensors_says_so(tmp_path: Path) -> None:
    from core.reference.wording import as_json, describe

    with Bundle(make_bundle(tmp_path, captured=False)) as bundle:
        data = as_json(bundle)
    assert data["capture"] == [] and "parity can't be measured" in data["parity"]
    assert data["parity"] in " ".join(describe(data).split())


def test_weights_that_are_only_sampled_are_said(bundle: Path) -> None:
    from core.reference.wording import as_json, describe

    def sample(name: str, content: bytes) -> bytes:
        if not name.endswith("weights.safetensors"):
            return content
        # The header gets longer, and its length with it.
        head = content[8:].replace(b'"0.bias"', b'"sketch.0.bias"')
        return struct.pack("<Q", struct.unpack("<Q", content[:8])[0] + 7) + head

    rehash(bundle, sample)
    with Bundle(bundle) as opened:
        data = as_json(opened)
    assert data["capture"][0]["sketched"] == {"forward": 0, "weights": 1}
    assert "only samples of 1 weights fitted into the budget" in describe(data)
