"""Which printed names are results of training, which are counters, which are settings."""

from __future__ import annotations

import re
from functools import lru_cache

#: Quantities that make a line a reading: a program prints them because it trains or evaluates.
RESULTS = frozenset(
    "loss losses nll ppl perplexity acc accuracy acc1 acc5 top1 top5 bleu sacrebleu chrf meteor "
    "rouge rouge1 rouge2 rougel rougelsum f1 auc auroc auprc mcc matthews pearson spearmanr "
    "spearman miou iou dice wer cer mse rmse mae mape psnr ssim lpips fid elbo bpc bpb bpd reward "
    "rew mfu gnorm mpjpe ndcg mrr ap50 ap75 map50 logloss xent crossentropy".split()
)
#: Results only where a separator or a qualifier says so: these are everyday words as well.
WEAK_RESULTS = frozenset("map precision recall score error err kl r2 em return ap returns".split())
#: Of these, the ones that are results with a word beside them only (``test error``).
_NEED_A_WORD = frozenset("error err return returns".split())
#: A setting, not a result, whatever else the name says (``loss_weight``, ``target_acc``).
SETTINGS = frozenset(
    "weight weights coef coeff coefficient alpha beta gamma scale scaling scaler smoothing "
    "threshold thresh target goal fn func function type kind name every interval freq frequency "
    "patience num n weighting reduction margin clip size eps epsilon decay warmup tol "
    "tolerance required factor count counts code limit status offset".split()
)
#: Names that belong in front of a head noun.
QUALIFIERS = frozenset(
    "train training val valid validation validate eval evaluation test testing dev best final "
    "last current max min mean avg average running total moving smoothed overall global local lm mlm nsp "
    "ce bce kl nll ctc grad gradient learning g d gen disc generator discriminator aux main macro "
    "micro weighted per token sample student teacher base policy value actor critic episode ep "
    "step iter iteration epoch batch reg recon rec seq sequence word char top in-sample "
    "cross entropy balanced mini-batch minibatch cls box obj".split()
)
#: Other nouns that follow a whitespace-separated value on training lines.
NOUNS = frozenset(
    "lr time norm rate data speed wps ups tps eta dt mem memory lm_loss bsz wpb".split()
)
EPOCHS = frozenset("epoch ep epochs".split()) - {"epochs"}
STEPS = frozenset(
    "step iter iteration it batch update global_step globalstep global-step train_step "
    "training_step train-step num_updates opt_step optimizer_step mb minibatch mini-batch "
    "current_iteration iters n_iter itr".split()
)
#: Keys of counters and labels in dictionaries, in the form of ``tidy_name``.
STEP_KEYS = (
    "global_step",
    "step",
    "_step",
    "train_step",
    "trainer_global_step",
    "iteration",
    "iter",
    "num_updates",
    "updates",
    "update",
    "steps",
    "batch",
)
TOTAL_KEYS = ("max_steps", "total_steps", "num_steps", "train_iters", "max_iters")
EPOCH_KEYS = ("epoch", "train_epoch", "current_epoch")
RANK_KEYS = ("rank", "global_rank", "replica", "local_rank", "process_index", "proc", "worker")
PHASES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "validate": "val",
    "dev": "val",
    "eval": "eval",
    "evaluation": "eval",
    "test": "test",
    "testing": "test",
}
_LOSS_LIKE = re.compile(
    r"^(?:[a-z0-9]{0,12}loss|acc\d{0,2}|top\d{1,2}|[a-z]{0,9}accuracy|rouge\w)$"
)
_GRAD_NORM = re.compile(r"(?:^|_)(?:grad|gradient|gradients|total)_?norm(?:_|$)")
_STEP_TIME = re.compile(
    r"^(?:(?:avg|mean|average|elapsed|train|training)_)?(?:"
    r"(?:step|iter|iteration|batch)_?(?:time|duration|seconds)|(?:elapsed_)?(?:time|sec|secs|seconds|ms|s)"
    r"_(?:per_)?(?:step|iter|iteration|it|batch))(?:_(?:ms|s|sec|secs|seconds))?$"
)


@lru_cache(maxsize=4096)  # a program prints the same few names all the time
def is_result(name: str, *, weak: bool = True) -> bool:
    """Whether a tidy name is a result of training or evaluation, and not a setting for it.

    ``weak``: whether everyday words (``map``, ``score``) count on their own.
    """
    if _GRAD_NORM.search(name) and not name.startswith("max_"):
        return True
    parts = [p for p in re.split("[_@]", name) if p]
    if not parts or any(p in SETTINGS for p in parts):
        return False
    if any(p in RESULTS or _LOSS_LIKE.match(p) for p in parts):
        return True
    if any(p in WEAK_RESULTS for p in parts):
        if any(p in PHASES or p in ("mean", "avg", "average", "episode", "ep") for p in parts):
            return True
        return weak and not any(p in _NEED_A_WORD for p in parts)
    return name in ("exact_match", "r2_score")


@lru_cache(maxsize=4096)
def is_step_time(name: str) -> bool:
    """Whether a tidy name is the time of one step or batch."""
    return bool(_STEP_TIME.match(name))


def first_of(values: dict[str, float], keys: tuple[str, ...]) -> float | None:
    """The first of these keys that is there."""
    return next((values[k] for k in keys if k in values), None)
