"""Words for metrics: which way is better, and whether a value is a share of 1."""

from __future__ import annotations

import re

LOWER = set(
    "loss losses ppl perplexity error err wer cer mae mse rmse mape nll bpc bpd bpb fid lpips eer "
    "distance epe rer ter brier chamfer hausdorff".split()
)
"""Words of metrics for which lower is better."""

SHARES = set(
    "accuracy acc prec top1 top5 acc1 acc5 f1 f1score fscore precision recall auc auroc roc map ap iou "
    "miou dice jaccard em exact mcc kappa ndcg mrr hit hits sensitivity specificity".split()
)
"""Metrics that are mostly shares of 1: higher is better, and 100 makes points of them."""

SCALES = set(
    "bleu rouge meteor chrf sacrebleu cider spice psnr ssim is reward return score".split()
)
SCALES |= {"r2", "spearman", "pearson", "correlation", "rouge1", "rouge2", "rougel"}
"""Other metrics for which higher is better."""

PHASES = {
    "test": 30,
    "testing": 30,
    "val": 25,
    "valid": 25,
    "validation": 25,
    "eval": 25,
    "dev": 25,
}
PHASES |= {"evaluation": 25, "best": 15, "final": 25, "train": -25, "training": -25, "batch": -25}
"""What a phase is worth in the ranking."""


def words(text: str) -> list[str]:
    """``testAccuracy@1`` as test, accuracy, 1; in lower case."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text[:200])
    return [w.lower() for w in re.findall(r"[A-Za-z]+\d?|\d+", spaced)]


def is_metric(name: str) -> bool:
    """Whether a name has the word of a metric in it."""
    return bool(set(words(name)) & (LOWER | SHARES | SCALES))


def lower_is_better(name: str) -> bool:
    """By the metric's word: ``val_loss`` yes, ``accuracy`` no."""
    found = words(name)
    known = [w for w in found if w in LOWER or w in SHARES or w in SCALES]
    return bool(known) and known[-1] in LOWER


def has_phase(name: str) -> bool:
    """Whether a name says of what the metric is: ``test``, ``valid``, ``train`` ..."""
    return any(w in PHASES for w in words(name))


def is_share(name: str) -> bool:
    """Whether the metric is mostly given as a share of 1 (or in percent)."""
    return bool(set(words(name)) & SHARES) and not lower_is_better(name)


def is_percent(name: str) -> bool:
    """``Prec@1``, ``top5``: by the habit of ImageNet's scripts these are printed in percent."""
    return bool(re.search(r"(?i)(?:prec|acc|top)[@-]?[15](?!\d)", name))


def worth(name: str) -> int:
    """How good a metric to judge a migration by: an evaluation of quality before a loss."""
    found = words(name)
    score = 0
    if any(w in SHARES or w in SCALES for w in found):
        score += 30
    elif any(w in LOWER - {"loss", "losses"} for w in found):
        score += 25
    elif any(w in LOWER for w in found):
        score += 10
    return score + max((PHASES[w] for w in found if w in PHASES), default=0, key=abs)


def tidy(text: str) -> str:
    """A metric's name for people, out of the text before a value: ``Test Accuracy`` ..."""
    found = re.sub(r"[\s_:=/]+", " ", text).strip(" -|,;()[]").strip()
    return " ".join(w.lower() if w.istitle() and w.isalpha() else w for w in found.split(" "))
