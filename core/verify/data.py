"""What is trained on: each pass over the data, and which part of it each rank gets."""

from __future__ import annotations

from itertools import combinations

from core.verify.passes import Pass, all_recorded, passes
from core.verify.registry import check
from core.verify.subject import NotRun, Subject, Verdict, judged

#: Passes that are compared and written into the evidence.
SHOWN = 50


@check("L1.data")
def data(s: Subject) -> Verdict:
    """Each pass over the training data gives as many samples, in an order that varies as much.

    Of the full runs. Samples are those that the sampler gave, so padding is none, and exact where
    there are as many ranks. Over more or fewer ranks they are summed: up to a global batch more
    (padding of the shards) or one less than there are ranks fewer. A pass that the reference does
    not make to its end is not counted, for loaders read ahead.
    """
    ours, theirs = passes(s.reference, "train"), passes(s.run, "train")
    for run, found in ((s.reference, ours), (s.run, theirs)):
        if not found:
            raise NotRun(f"The probe saw no training on a DataLoader in run #{run.number}.")
    if not s.run.ok_exit:
        raise NotRun(f"Run #{s.run.number} did not end with exit 0, so its samples say nothing.")
    first = next(iter(theirs.values()))
    wrong = _order(next(iter(ours.values())), first)
    wrong = wrong or _samples(s, ours, theirs)
    expected, actual = _told(ours), _told(theirs)
    return judged(
        not wrong,
        wrong or f"{len(first)} pass(es) over the data",
        expected=expected,
        actual=actual,
        tolerance="equal" if len(ours) == len(theirs) else "a global batch a pass",
        evidence={"samples of passes": [one.samples for one in first[:SHOWN]]},
    )


def _told(by_rank: dict[int, list[Pass]]) -> str:
    first = next(iter(by_rank.values()))
    known = [one.samples for one in first if one.samples is not None]
    each = f" of {min(known)}" + (f" to {max(known)}" if max(known) > min(known) else "")
    of = f" on each of {len(by_rank)} ranks" if len(by_rank) > 1 else ""
    return f"{len(first)} pass(es)" + (f"{each} samples" if known else "") + of


# --- order -----------------------------------------------------------------------------------


def _order(ours: list[Pass], theirs: list[Pass]) -> str:
    """What is wrong with the order of the samples, of one rank each; ``""`` for nothing."""
    mine, other = ours[0].in_order, theirs[0].in_order
    if mine is False and other is True:
        return "the training data are no longer shuffled"
    if mine is True and other is False:
        return "the training data are shuffled, the reference's are in order"
    for field in ("first_ids", "first"):
        before, after = _varies(ours, field), _varies(theirs, field)
        if before is None or after is None:
            continue
        if before and not after:
            return "every pass begins with the same samples, the reference's with others each time"
        if after and not before and field == "first_ids":
            return "each pass begins with other samples, the reference's with the same"
        break
    return ""


def _varies(found: list[Pass], field: str) -> bool | None:
    """Whether passes over the same data begin with other samples; None for one pass each."""
    groups: dict[object, list[str]] = {}
    for by_loader in (True, False):
        groups = {}
        for one in found:
            # A program may make a new loader for each pass.
            key = one.loader if by_loader else (one.dataset_len, one.batch_size)
            if getattr(one, field):
                groups.setdefault(key, []).append(getattr(one, field))
        if any(len(hashes) > 1 for hashes in groups.values()):
            return any(len(set(hashes)) > 1 for hashes in groups.values())
    return None


# --- samples ---------------------------------------------------------------------------------


def _samples(s: Subject, ours: dict[int, list[Pass]], theirs: dict[int, list[Pass]]) -> str:
    if set(ours) == set(theirs):
        for rank in ours:
            wrong = _of_rank(ours[rank], theirs[rank])
            if wrong:
                return (f"rank {rank}: " if len(ours) > 1 else "") + wrong
        return _number(s, ours, theirs)
    return _number(s, ours, theirs) or _summed(ours, theirs)


def _number(s: Subject, ours: dict[int, list[Pass]], theirs: dict[int, list[Pass]]) -> str:
    """Whether there are fewer passes, or more; only of passes to the end, which are an epoch."""
    mine, other = next(iter(ours.values())), next(iter(theirs.values()))
    whole = all(one.complete for one in (*mine, *other))
    if len(mine) != len(other) and whole and all_recorded(s.reference) and all_recorded(s.run):
        return f"{len(other)} passes over the training data instead of {len(mine)}"
    return ""


def _of_rank(ours: list[Pass], theirs: list[Pass]) -> str:
    for n, (mine, other) in enumerate(zip(ours, theirs, strict=False), 1):
        if mine.iterable and other.iterable:
            # Each worker may end with an incomplete batch of its own.
            spare = max(mine.workers, other.workers, 1) - 1
            if mine.batch_size == other.batch_size and other.batches < mine.batches - spare:
                return f"{other.batches} batches in pass {n} instead of {mine.batches}"
            continue
        if None not in (mine.dataset_len, other.dataset_len):
            if mine.dataset_len != other.dataset_len:
                return f"a data set of {other.dataset_len} samples instead of {mine.dataset_len}"
        if None in (mine.samples, other.samples) or not mine.complete:
            continue
        if mine.samples != other.samples:
            return f"{other.samples} samples in pass {n} instead of {mine.samples}" + _why(
                mine, other
            )
    return ""


def _why(mine: Pass, other: Pass) -> str:
    if other.drop_last and not mine.drop_last:
        return " (drop_last drops an incomplete batch)"
    return "" if other.complete else " (it was not made to its end)"


def _summed(ours: dict[int, list[Pass]], theirs: dict[int, list[Pass]]) -> str:
    """The same for another number of ranks: the sum of the ranks' samples in each pass."""
    pairs = zip(_across(ours), _across(theirs), strict=False)
    for n, (mine, other) in enumerate(pairs, 1):
        if any(one.samples is None or not one.complete for one in (*mine, *other)):
            continue
        expected, actual = (sum(one.samples or 0 for one in at) for at in (mine, other))
        spare = max(sum(one.batch_size or 1 for one in at) for at in (mine, other))
        fewer = spare if any(one.drop_last for one in mine) else max(len(mine), len(other)) - 1
        if expected - fewer <= actual <= expected + spare:
            continue
        whole = len(other) > 1 and actual == expected * len(other)
        return f"{actual} samples in pass {n} over all ranks instead of {expected}" + (
            ": each rank reads all of them" if whole else _why(mine[0], other[0])
        )
    return ""


def _across(by_rank: dict[int, list[Pass]]) -> list[tuple[Pass, ...]]:
    return list(zip(*by_rank.values(), strict=False))


# --- shards ----------------------------------------------------------------------------------


@check("L2.shards")
def shards(s: Subject) -> Verdict:
    """No two ranks are fed the same batch at the beginning of every training pass.

    Told by a hash of the batch. Batches that are alike although the sampler gave other samples are
    made up, and where the reference's ranks get the same data, so may these.
    """
    theirs = passes(s.run, "train")
    if len(theirs) < 2:
        raise NotRun(f"Run #{s.run.number} fed one process: there are no shards to compare.")
    same, compared = _same_data(theirs)
    if not compared:
        raise NotRun(f"The first batches of run #{s.run.number} were not on the host to compare.")
    before = passes(s.reference, "train")
    if same and len(before) > 1 and _same_data(before)[0]:
        raise NotRun("The reference's ranks are fed the same data as each other, too.")
    pair = f"ranks {same[0]} and {same[1]}" if same else ""
    return judged(
        not same,
        f"{pair} are fed the same data" if same else f"{len(theirs)} ranks, each its own data",
        expected="another first batch on each rank",
        actual=f"the same on {pair}" if same else "others",
        evidence={"batches": compared, "ranks": len(theirs)},
    )


def _same_data(by_rank: dict[int, list[Pass]]) -> tuple[tuple[int, int] | None, int]:
    """The first two ranks that were fed alike in every pass, and how many pairs were compared."""
    compared = 0
    for a, b in combinations(by_rank, 2):
        pairs = [
            (x, y) for x, y in zip(by_rank[a], by_rank[b], strict=False) if x.first and y.first
        ]
        compared += len(pairs)
        alike = [
            x.first == y.first and (x.first_ids == y.first_ids or not x.first_ids) for x, y in pairs
        ]
        if alike and all(alike):
            return (a, b), compared
    return None, compared
