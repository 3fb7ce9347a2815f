"""The kinds of tag, and the names that settings of training go by."""

from __future__ import annotations

import re
from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of change: the category a finding of it would have, and why it matters."""

    category: str
    why: str


KINDS: dict[str, Kind] = {
    "clipping": Kind("C3", "Other gradients reach the optimizer than in the original."),
    "accumulation": Kind(
        "C3", "The optimizer steps on other sums of gradients, or at other times."
    ),
    "batch size": Kind("C3", "Each step sees another number of samples."),
    "learning rate": Kind("C3", "The size of each update changes."),
    "schedule": Kind("C3", "The learning rate takes another course."),
    "epochs": Kind("C3", "The training has another length."),
    "seed": Kind("C3", "Other random numbers are drawn, so no two runs can be held together."),
    "dtype": Kind("C5", "Numbers are computed or kept in another precision."),
    "drop_last": Kind("C3", "Samples are left out, or no longer left out."),
    "shuffle": Kind("C3", "Samples come in another order."),
    "sampler": Kind("C3", "Each process sees other samples."),
    "padding": Kind("C3", "Inputs have another length, and with it another content."),
    "masks": Kind("C5", "Other positions count in attention or in the loss."),
    "data subset": Kind("C3", "Only a part of the data is used, or another part."),
    "dataset": Kind("C3", "The samples themselves change."),
    "loss": Kind("C5", "Another quantity is minimised."),
    "detach": Kind("C3", "Gradients flow through other parts of the graph."),
    "optimizer": Kind("C3", "Updates follow another rule."),
    "parameter groups": Kind("C3", "Other parameters are updated, or by other rules."),
    "frozen": Kind("C3", "Other parameters are trained."),
    "dropout": Kind("C3", "Another regularisation is trained with."),
    "mode": Kind("C3", "Dropout and normalisation act as in the other mode."),
    "normalisation": Kind("C3", "Activations are scaled by other statistics."),
    "weights": Kind("C3", "The model starts from other weights, or shares other ones."),
    "architecture": Kind("C3", "It is another model."),
    "checkpoint": Kind("C3", "Other state is saved or taken up again."),
    "metric": Kind("", "The result is measured in another way."),
    "evaluation data": Kind("", "The result is measured on other data."),
    "tests": Kind("", "What checks the work was changed."),
    "tolerance": Kind("", "A check is held to another limit."),
    "reduce": Kind("C3", "Gradients or results are put together across processes in another way."),
    "early exit": Kind("C3", "Steps, or the rest of the training, may be left out."),
    "exceptions": Kind("", "An error would go by unseen."),
    "environment": Kind("C1", "The program runs with another environment."),
    "dependencies": Kind("C1", "Another version of a library may be installed."),
    "protected": Kind("", "The file is protected by [guard] protect."),
}
"""All kinds, in the order in which they are listed."""

_SETTINGS: tuple[tuple[str, str], ...] = (
    ("clipping", (r"(max_|clip_)?grad(ient)?s?_(norm|clip|clipping)(_val|_value|_norm|_max)?"
                 r"|clip(_grad|_gradients?)?(_norm|_value|_val)?|max_norm|gradient_clip_algorithm")),
    ("accumulation", (r"(gradient_|grad_)?accum(ulat(e|ion))?(_steps?|_iters?|_iter|_grad(_batches)?)?"
                     r"|gradient_accumulation(_steps)?|grad_accum(_steps)?|accumulate_grad_batches"
                     r"|update_freq|iters_to_accumulate")),
    ("batch size", (r"(\w+_)?batch_?size(_\w+)?|bs|bsz|(train|eval|test|val|micro|mini)_?(bs|bsz|batch)"
                   r"|micro_batch|(samples|imgs|images)_per_gpu")),
    ("schedule", (r"(lr_)?warmup(_\w+)?|(\w+_)?warmup_(steps|ratio|epochs?|iters?)|lr_scheduler(_\w+)?"
                 r"|(lr_)?sched(uler|ule)?(_type|_name)?|lr_decay(_\w+)?|lr_gamma|lr_step_size|step_size"
                 r"|milestones|decay_(steps|epochs|rate|iters)|min_lr|eta_min|final_lr|t_max|pct_start")),
    ("learning rate", r"(\w+_)?lr|(\w+_)?learning_?rate|lr_\w+"),
    ("epochs", (r"(\w+_)?epochs?(_num)?|(n|num|max|total|train|training|num_train|max_train)_?"
               r"(steps|iters|iterations|updates|train_steps|train_epochs|training_steps)"
               r"|steps|iters|iterations|limit_epochs|patience|early_stopping(_\w+)?")),
    ("seed", r"(\w+_)?seed(s|_\w+)?"),
    ("dtype", (r"(\w+_)?dtype|(\w+_)?precision|(use_|enable_)?(amp|fp16|bf16|half|mixed_precision|fp32|tf32)"
              r"|amp_level|opt_level|fp16_\w+|bf16_\w+|half_precision_backend|xla_use_bf16"
              r"|xla_downcast_bf16|loss_scale")),
    ("drop_last", r"(\w+_)?drop_last|dataloader_drop_last"),
    ("shuffle", r"(\w+_)?shuffle(_\w+)?"),
    ("sampler", r"num_replicas|num_shards|shard(_index|_id)?|group_by_length"),
    ("padding", (r"(\w+_)?max_(seq_|sequence_|source_|target_)?(len|length)|(seq|sequence|block|context)_?(len|length|size)"
                r"|padding(_\w+)?|pad_to_\w+|truncation(_\w+)?|pad(_token)?_(id|value)|n_ctx|max_tokens")),
    ("masks", r"ignore_index|ignore_idx|mlm_prob(ability)?|mask_(prob|ratio|rate|token)\w*"),
    ("data subset", (r"max_(train|eval|val|test|predict)?_?samples|limit_(\w+_)?(batches|samples|data)"
                    r"|(train|data|val|eval|test)?_?(subset|fraction|frac|ratio|portion|split)(_\w+)?"
                    r"|num_samples|n_samples|fast_dev_run|overfit_batches|debug")),
    ("dataset", (r"(train_|training_)?(data|dataset)_?(name|path|dir|root|file|set)?|train_file"
                r"|(image|img|crop|input)_?size|augment(ation)?s?(_\w+)?|(auto_?)augment\w*|hflip|color_jitter"
                r"|mixup(_\w+)?|cutmix(_\w+)?")),
    ("loss", (r"(\w+_)?loss_(weight|fn|type|scale|coef)\w*|(\w+_)?(loss)_?weights?|label_smoothing(_\w+)?|smoothing"
             r"|(kl|aux|l1|l2|reg)_(coef|weight|lambda)|reduction|temperature|class_weights?")),
    ("optimizer", (r"optim(izer)?(_name|_type)?|weight_decay|wd|(\w+_)?momentum|(adam_)?beta_?[12s]|betas"
                  r"|(adam_)?eps(ilon)?|nesterov|amsgrad")),
    ("frozen", r"freeze(_\w+)?|frozen(_\w+)?|unfreeze(_\w+)?|trainable(_\w+)?"),
    ("dropout", (r"(\w+_)?drop(out|_path)?(_?(rate|prob|p|ratio|prob(ability)?))?|p_drop|attn_pdrop|resid_pdrop"
                r"|embd_pdrop|layerdrop")),
    ("normalisation", r"(layer_?norm|rms_norm|batch_?norm|bn|norm)_(eps|epsilon|momentum|type)|sync_bn|sync_batchnorm"),
    ("weights", r"init(ializer)?_(range|std|gain|scale)|tie_(word_)?(embeddings|weights)|pretrained(_\w+)?|ema(_decay)?"),
    ("architecture", (r"(n|num)_?(layers?|heads?|classes|hidden|embd|blocks|channels|experts)|(hidden|embed|model|d|ff|mlp)_?(size|dim)"
                     r"|(n_)?(embd|head|layer)|num_hidden_layers|num_attention_heads|intermediate_size|vocab_size"
                     r"|d_model|depth|width|num_labels")),
    ("checkpoint", (r"resume(_\w+)?|(save|checkpoint|ckpt)_(every|freq|steps|interval|strategy|best|total_limit)"
                   r"|save_(total_)?(limit|steps|strategy)|load_best_model_at_end")),
    ("evaluation data", r"(eval|test|val)_(data|dataset|file|split|set)(_\w+)?"),
    ("metric", r"metric(s|_for_best_model|_name)?|greater_is_better|eval_metric|average|top_?k|threshold"),
    ("tolerance", r"(\w+_)?(atol|rtol|tol|tolerance)"),
    ("reduce", r"reduce_(op|grads)|gradient_as_bucket_view|average_gradients"),
)  # fmt: skip
# Order of asking: what is more special comes first, whatever the order above.
_FIRST = ("evaluation data", "tolerance", "metric", "drop_last")
_COMPILED = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in sorted(_SETTINGS, key=lambda s: s[0] not in _FIRST)
)
_KNOWN: dict[str, str] = {}
_QUIET = re.compile(r"(log|print|logging)(_\w+)?|(\w+_)?(workers|device|port|rank|verbose)")


def setting_kind(name: str) -> str:
    """The kind of a setting by its name (``--max-grad-norm``, ``optim.lr``); ``""`` for others."""
    name = name.rsplit(".", 1)[-1].lstrip("-").replace("-", "_").lower().strip("_")
    found = _KNOWN.get(name)
    if found is None:
        found = ""
        if len(name) <= 40 and not _QUIET.fullmatch(name):
            found = next((k for k, pattern in _COMPILED if pattern.fullmatch(name)), "")
        if len(_KNOWN) > 20_000:
            _KNOWN.clear()
        _KNOWN[name] = found
    return found


_QUIET_ENV = re.compile(
    r"PJRT_\w+|TPU_\w+|XRT_\w+|CUDA_\w+|NVIDIA_\w+|NCCL_\w+|MASTER_\w+|LIBTPU_\w+|PT_XLA_\w+|OMP_NUM_THREADS"
    r"|TOKENIZERS_PARALLELISM|PYTHONUNBUFFERED|WANDB_\w+|XLA_(IR|HLO)_DEBUG|PATH|LD_LIBRARY_PATH|PYTHONPATH"
    r"|XLA_PERSISTENT_CACHE\w*|RANK|LOCAL_RANK|WORLD_SIZE|TF_CPP_\w+|GLOO_\w+"
)


def environment_kind(name: str) -> str:
    """The kind of an environment variable; ``""`` where it only says where the program runs."""
    if name in (
        "XLA_USE_BF16",
        "XLA_DOWNCAST_BF16",
        "XLA_USE_F16",
        "XLA_DOWNCAST_FP16",
        "NVIDIA_TF32_OVERRIDE",
    ):
        return "dtype"
    if _QUIET_ENV.fullmatch(name):
        return ""
    return setting_kind(name) or ("environment" if re.fullmatch(r"[A-Z][A-Z0-9_]*", name) else "")
