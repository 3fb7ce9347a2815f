"""The calls of PyTorch and its neighbours that the guard knows, with what their arguments mean.

Signatures and defaults are those of torch 2.9, torchvision 0.24, transformers 4.57 and accelerate
1.10. A default that is written out is no change.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Known:
    """One known callable.

    ``group`` is what it can be compared with; ``kind`` the kind of its coming and going, and of a
    change of class. ``names`` are its positional parameters; ``kinds`` the kind by argument;
    ``other`` the kind of arguments that are not in it (``""``: not looked at, ``*``: by the
    setting's name). ``defaults`` are values as the guard writes them.
    """

    group: str
    kind: str
    names: tuple[str, ...] = ()
    kinds: dict[str, str] = field(default_factory=dict)
    other: str = ""
    defaults: dict[str, str] = field(default_factory=dict)
    presence: str = "sure"
    ignored: tuple[str, ...] = ()
    method: bool = False
    """Also looked for as a method of an object that is not known."""


KNOWN: dict[str, Known] = {}


def _known(
    callables: str,
    group: str,
    kind: str,
    signature: str = "",
    *,
    kinds: dict[str, str] | None = None,
    other: str | None = None,
    defaults: str = "",
    presence: str = "sure",
    ignored: str = "",
    method: bool = False,
) -> None:
    """Register callables by the last part of their name; ``defaults`` as ``a=1 b=None``."""
    known = Known(
        group,
        kind,
        tuple(signature.split()),
        kinds or {},
        kind if other is None else other,
        {a: v.replace(",", ", ") for a, v in (pair.split("=", 1) for pair in defaults.split())},
        presence,
        tuple(ignored.split()),
        method,
    )
    for name in callables.split():
        assert name not in KNOWN, name
        KNOWN[name] = known


# fmt: off
# --- optimizers and schedules ----------------------------------------------------------------

_GROUPS = {"params": "parameter groups", "lr": "learning rate"}
_SPEED = "foreach fused capturable differentiable maximize"
_known("Adam AdamW NAdam RAdam Adamax AdamW8bit Adam8bit FusedAdam", "optimizer", "optimizer",
       "params lr betas eps weight_decay amsgrad", kinds=_GROUPS, ignored=_SPEED,
       defaults="lr=0.001 betas=(0.9,0.999) eps=1e-08 amsgrad=False")
_known("SGD", "optimizer", "optimizer", "params lr momentum dampening weight_decay nesterov",
       kinds=_GROUPS, ignored=_SPEED,
       defaults="lr=0.001 momentum=0 dampening=0 weight_decay=0 nesterov=False")
_known("RMSprop", "optimizer", "optimizer", "params lr alpha eps weight_decay momentum centered",
       kinds=_GROUPS, ignored=_SPEED, defaults="lr=0.01 alpha=0.99 eps=1e-08 weight_decay=0 momentum=0")
_known("Adagrad Adadelta Adafactor LBFGS Rprop ASGD SparseAdam Lion LAMB Lamb FusedLAMB LARS SAM",
       "optimizer", "optimizer", "params lr", kinds=_GROUPS, ignored=_SPEED)
_known("add_param_group", "param group call", "parameter groups", "group", other="",
       method=True)
_known("StepLR MultiStepLR ExponentialLR CosineAnnealingLR CosineAnnealingWarmRestarts OneCycleLR CyclicLR "
       "LinearLR ConstantLR PolynomialLR ReduceLROnPlateau LambdaLR MultiplicativeLR SequentialLR ChainedScheduler "
       "get_scheduler get_linear_schedule_with_warmup get_cosine_schedule_with_warmup WarmupLR "
       "get_constant_schedule_with_warmup get_constant_schedule get_polynomial_decay_schedule_with_warmup "
       "get_cosine_with_hard_restarts_schedule_with_warmup CosineLRScheduler StepLRScheduler",
       "schedule", "schedule", "optimizer a1 a2 a3 a4 a5 a6", ignored="verbose optimizer",
       defaults="last_epoch=-1")

# --- data ------------------------------------------------------------------------------------

_known("DataLoader StatefulDataLoader", "loader", "dataset", "dataset batch_size shuffle sampler batch_sampler "
       "num_workers collate_fn pin_memory drop_last timeout worker_init_fn",
       kinds={"dataset": "dataset", "batch_size": "batch size", "shuffle": "shuffle", "sampler": "sampler",
              "batch_sampler": "sampler", "collate_fn": "dataset", "drop_last": "drop_last", "generator": "seed"},
       other="", defaults="batch_size=1 shuffle=False sampler=None batch_sampler=None drop_last=False "
       "collate_fn=None generator=None", presence="guess")
_known("DistributedSampler", "sampler", "sampler", "dataset num_replicas rank shuffle seed drop_last",
       kinds={"shuffle": "shuffle", "seed": "seed", "drop_last": "drop_last"}, other="sampler",
       ignored="dataset", defaults="shuffle=True seed=0 drop_last=False", presence="gone")
_known("RandomSampler SequentialSampler WeightedRandomSampler BatchSampler SubsetRandomSampler LengthGroupedSampler",
       "sampler", "sampler", "source a1 a2 a3", ignored="source", presence="gone")
_known("set_epoch", "set_epoch", "sampler", "epoch", presence="gone", method=True)
_known("Subset", "subset", "data subset", "dataset indices", ignored="dataset")
_known("random_split", "subset", "data subset", "dataset lengths generator", ignored="dataset",
       kinds={"generator": "seed"})
_known("islice", "islice", "data subset", "iterable stop a2 a3", ignored="iterable")
_known("select take skip shard", "subset method", "data subset", "first second", method=True)
_known("train_test_split", "split", "data subset", "data", ignored="data",
       kinds={"random_state": "seed", "shuffle": "shuffle"}, method=True)
_known("load_dataset", "load_dataset", "dataset", "path name", kinds={"split": "data subset"},
       ignored="cache_dir trust_remote_code num_proc keep_in_memory token")
_known("MNIST FashionMNIST CIFAR10 CIFAR100 ImageFolder ImageNet SVHN STL10 CocoDetection VOCSegmentation "
       "FakeData DatasetFolder TensorDataset", "torchvision dataset", "dataset", "root train transform",
       ignored="download", presence="gone", kinds={"train": "data subset"})
_known("Compose Resize RandomResizedCrop RandomHorizontalFlip RandomVerticalFlip CenterCrop RandomCrop "
       "ColorJitter RandomRotation RandomAffine RandomErasing ToTensor Normalize Pad GaussianBlur RandAugment "
       "AutoAugment TrivialAugmentWide Grayscale RandomGrayscale MixUp CutMix Mixup ToImage ToDtype create_transform "
       "HorizontalFlip ShiftScaleRotate RandomBrightnessContrast RandomApply",
       "transform", "dataset", "a0 a1 a2 a3 a4", ignored="transforms")
_known("tokenizer encode_plus batch_encode_plus __tokenizer__ batch_encode", "tokenizer", "padding", "text",
       kinds={"padding": "padding", "truncation": "padding", "max_length": "padding",
              "pad_to_max_length": "padding", "pad_to_multiple_of": "padding", "add_special_tokens": "dataset"},
       other="", presence="quiet", method=True)
_known("pad_sequence", "pad_sequence", "padding", "sequences batch_first padding_value", ignored="sequences",
       defaults="batch_first=False padding_value=0", presence="gone")
_known("DataCollatorWithPadding DataCollatorForLanguageModeling DataCollatorForSeq2Seq default_data_collator "
       "DataCollatorForTokenClassification", "collator", "padding", "tokenizer", ignored="tokenizer return_tensors",
       kinds={"mlm": "masks", "mlm_probability": "masks", "label_pad_token_id": "masks"})

# --- losses, gradients, precision ------------------------------------------------------------

_LOSS = {"ignore_index": "masks", "reduction": "loss", "weight": "loss", "label_smoothing": "loss"}
_known("CrossEntropyLoss NLLLoss MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss BCEWithLogitsLoss KLDivLoss "
       "MultiLabelMarginLoss MarginRankingLoss TripletMarginLoss CosineEmbeddingLoss CTCLoss PoissonNLLLoss "
       "GaussianNLLLoss HingeEmbeddingLoss MultiMarginLoss SoftMarginLoss LabelSmoothingCrossEntropy FocalLoss",
       "loss", "loss", "weight size_average ignore_index reduce reduction label_smoothing", kinds=_LOSS,
       defaults="reduction='mean' ignore_index=-100 label_smoothing=0 weight=None")
_known("cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy "
       "binary_cross_entropy_with_logits kl_div triplet_margin_loss cosine_embedding_loss ctc_loss "
       "poisson_nll_loss gaussian_nll_loss margin_ranking_loss", "loss", "loss",
       "input target weight size_average ignore_index", kinds=_LOSS, ignored="input target",
       defaults="reduction='mean' ignore_index=-100 label_smoothing=0 weight=None")
_known("clip_grad_norm_ clip_grad_norm", "clip", "clipping", "parameters max_norm norm_type",
       defaults="norm_type=2", ignored="foreach", method=True, kinds={"parameters": "clipping"})
_known("clip_grad_value_", "clip", "clipping", "parameters clip_value", ignored="foreach", method=True)
_known("clip_gradients", "clip", "clipping", "module optimizer clip_val max_norm", method=True)
_known("autocast", "autocast", "dtype", "device", kinds={"dtype": "dtype", "enabled": "dtype"}, other="",
       defaults="enabled=True")
_known("GradScaler", "scaler", "dtype", "", kinds={"enabled": "dtype", "init_scale": "dtype"}, other="",
       defaults="enabled=True", presence="guess")
_known("set_default_dtype set_default_tensor_type", "default dtype", "dtype", "dtype")
_known("set_float32_matmul_precision", "matmul precision", "dtype", "precision", presence="guess")
_known("all_reduce reduce_gradients all_gather reduce_scatter mesh_reduce all_to_all", "reduce", "reduce",
       "a0 a1 a2 a3", kinds={"op": "reduce", "reduce_type": "reduce", "scale": "reduce"}, other="",
       presence="gone", method=True)
_known("DistributedDataParallel DataParallel", "data parallel", "reduce", "module", ignored="module device_ids "
       "output_device find_unused_parameters gradient_as_bucket_view static_graph broadcast_buffers bucket_cap_mb "
       "process_group dim", presence="quiet")

# --- models ----------------------------------------------------------------------------------

_known("Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout DropPath StochasticDepth",
       "dropout", "dropout", "p inplace", ignored="inplace", defaults="p=0.5")
_known("dropout dropout2d alpha_dropout", "functional dropout", "dropout", "input p training",
       ignored="input inplace", defaults="p=0.5 training=True")
_known("scaled_dot_product_attention", "attention", "architecture", "q k v attn_mask dropout_p is_causal",
       kinds={"attn_mask": "masks", "is_causal": "masks", "dropout_p": "dropout", "scale": "architecture"}, other="",
       defaults="attn_mask=None dropout_p=0 is_causal=False", presence="guess")
_known("BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm InstanceNorm2d LayerNorm GroupNorm RMSNorm LocalResponseNorm "
       "InstanceNorm1d LayerNorm2d FrozenBatchNorm2d", "norm layer", "normalisation", "shape eps momentum affine "
       "track_running_stats", other="normalisation", defaults="eps=1e-05 momentum=0.1 affine=True "
       "track_running_stats=True elementwise_affine=True")
_known("convert_sync_batchnorm", "sync bn", "normalisation", "module", ignored="module", presence="gone")
_known("Linear Conv1d Conv2d Conv3d ConvTranspose2d Embedding LSTM GRU RNN MultiheadAttention TransformerEncoderLayer "
       "TransformerDecoderLayer Bilinear EmbeddingBag MaxPool2d AvgPool2d AdaptiveAvgPool2d ReLU GELU SiLU Tanh Sigmoid "
       "LeakyReLU ELU Softmax LogSoftmax Hardswish Mish Transformer",
       "layer", "architecture", "a0 a1 a2 a3 a4 a5 a6 a7", kinds={"dropout": "dropout"}, ignored="inplace",
       defaults="bias=True approximate='none' padding=0 stride=1 dilation=1 groups=1")
_known("gelu", "activation", "architecture", "input approximate", ignored="input", defaults="approximate='none'",
       presence="guess")
_known("xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_ orthogonal_ trunc_normal_ normal_ uniform_ "
       "zeros_ ones_ constant_ zero_ eye_ sparse_ dirac_ xavier_uniform kaiming_normal", "init", "weights",
       "tensor a1 a2 a3 a4", method=True, ignored="tensor")
_known("tie_weights", "tie", "weights", method=True, presence="gone")
_known("requires_grad_", "requires_grad", "frozen", "requires_grad", defaults="requires_grad=True", method=True)
_known("freeze unfreeze freeze_backbone freeze_encoder freeze_features", "freeze call", "frozen", "a0 a1", method=True)
_known("masked_fill masked_fill_", "masked_fill", "masks", "mask value", method=True, kinds={"mask": "masks"})
_known("tril triu tril_ triu_", "triangle", "masks", "input diagonal", method=True, ignored="input",
       defaults="diagonal=0")

# --- seeds, saving, libraries ----------------------------------------------------------------

_known("manual_seed seed_everything set_seed default_rng manual_seed_all__", "seed", "seed", "seed",
       kinds={"seed": "seed"}, other="", presence="gone", method=True)
_known("set_rng_state", "seed", "seed", "seed", presence="quiet", ignored="device")
_known("use_deterministic_algorithms", "deterministic", "seed", "mode", presence="guess")
_known("save save_checkpoint save_pretrained save_state save_file save_model", "save", "checkpoint",
       "obj path", kinds={"obj": "checkpoint"}, other="", presence="gone")
_known("load_state_dict", "load", "checkpoint", "state_dict strict assign", kinds={"strict": "checkpoint"}, other="",
       defaults="strict=True", method=True)
_known("load_checkpoint load_state load_model", "load call", "checkpoint", "a0", other="", presence="gone", method=True)
_known("from_pretrained from_config", "pretrained", "weights", "name", kinds={"name": "weights",
       "torch_dtype": "dtype", "dtype": "dtype", "num_labels": "architecture", "revision": "weights",
       "attn_implementation": "", "load_in_8bit": "dtype", "load_in_4bit": "dtype"}, other="", method=True)
_known("TrainingArguments Seq2SeqTrainingArguments Trainer Seq2SeqTrainer Accelerator Fabric SFTConfig SFTTrainer "
       "DPOConfig", "trainer", "epochs", "output_dir", other="*", presence="guess",
       kinds={"train_dataset": "dataset", "eval_dataset": "evaluation data", "compute_metrics": "metric",
              "data_collator": "padding", "callbacks": "early exit", "optimizers": "optimizer"})
_known("accuracy_score f1_score roc_auc_score precision_score recall_score mean_squared_error r2_score matthews_corrcoef "
       "log_loss average_precision_score balanced_accuracy_score MulticlassAccuracy BinaryAccuracy Accuracy F1Score "
       "corpus_bleu sacrebleu", "metric call", "metric", "a0 a1 a2 a3", ignored="a0 a1",
       kinds={"average": "metric", "num_classes": "metric", "top_k": "metric"})
_known("allclose isclose assert_close assert_allclose approx assert_almost_equal assertAlmostEqual",
       "closeness", "tolerance", "actual expected a2 a3", ignored="actual expected equal_nan",
       kinds={"a2": "tolerance"}, presence="quiet", method=True)

SIGNATURES: dict[str, tuple[str, ...]] = {
    name: tuple(signature.split())
    for name, signature in (
        ("StepLR", "optimizer step_size gamma"),
        ("MultiStepLR", "optimizer milestones gamma"),
        ("ExponentialLR", "optimizer gamma"),
        ("CosineAnnealingLR", "optimizer T_max eta_min"),
        ("CosineAnnealingWarmRestarts", "optimizer T_0 T_mult eta_min"),
        ("OneCycleLR", "optimizer max_lr total_steps epochs steps_per_epoch pct_start"),
        ("LambdaLR", "optimizer lr_lambda"),
        ("LinearLR", "optimizer start_factor end_factor total_iters"),
        ("get_linear_schedule_with_warmup", "optimizer num_warmup_steps num_training_steps"),
        ("get_cosine_schedule_with_warmup", "optimizer num_warmup_steps num_training_steps num_cycles"),
        ("Linear", "in_features out_features bias"),
        ("Conv1d", "in_channels out_channels kernel_size stride padding dilation groups bias"),
        ("Conv2d", "in_channels out_channels kernel_size stride padding dilation groups bias"),
        ("Embedding", "num_embeddings embedding_dim padding_idx"),
        ("LSTM", "input_size hidden_size num_layers bias batch_first dropout bidirectional"),
        ("GRU", "input_size hidden_size num_layers bias batch_first dropout bidirectional"),
        ("MaxPool2d", "kernel_size stride padding"),
        ("GroupNorm", "num_groups num_channels eps affine"),
        ("LayerNorm", "shape eps elementwise_affine bias"),
        ("Normalize", "mean std"),
        ("Resize", "size interpolation"),
        ("RandomCrop", "size padding"),
        ("RandomResizedCrop", "size scale ratio"),
        ("RandomHorizontalFlip", "p"),
        ("Compose", "transforms"),
        ("BatchSampler", "source batch_size drop_last"),
        ("BCEWithLogitsLoss", "weight size_average reduce reduction pos_weight"),
        ("MSELoss", "size_average reduce reduction"),
        ("L1Loss", "size_average reduce reduction"),
        ("NLLLoss", "weight size_average ignore_index reduce reduction"),
    )
}
"""Positional parameters where a class has others than its group."""

CLASS_DEFAULTS = {
    "AdamW": {"weight_decay": "0.01"},
    "Adam": {"weight_decay": "0"},
    "StepLR": {"gamma": "0.1"},
    "MultiStepLR": {"gamma": "0.1"},
    "CosineAnnealingLR": {"eta_min": "0"},
    "RandomHorizontalFlip": {"p": "0.5"},
    "MultiheadAttention": {"dropout": "0"},
    "LSTM": {"dropout": "0", "num_layers": "1"},
    "Embedding": {"padding_idx": "None"},
}
"""Defaults that only one class of its group has."""
# fmt: on
