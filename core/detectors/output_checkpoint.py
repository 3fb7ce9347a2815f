"""Checkpoints that do not hold what they should, as far as the output shows it."""

from __future__ import annotations

import re

from core.detectors.base import OutputDetector, Sighting, detector
from core.detectors.output_fields import number, sizes
from core.detectors.output_look import Line, LogLook, in_order, quote

_KEYS = re.compile(
    r"(?:missing|unexpected|unused|unmatched)(?:_| )(?:adapter |lora )?keys?(?:\(s\))?(?!\w)|were not used when initializing"
    r"|were not initialized from the (?:model )?checkpoint|(?:adapter|lora)\S* keys? .{0,40}not (?:found|loaded|matched)"
    r"|keys? (?:in|of) (?:the )?(?:checkpoint|state_dict|state dict) .{0,40}(?:not|missing|ignored|skipped|unmatched)"
    r"|\b0 ?(?:of|/) ?\d+ (?:\w+ )?(?:keys|tensors|weights|parameters|params)\b.{0,30}(?:load|match|restor)"
    r"|(?:loaded|matched|restored) 0 ?(?:of|/) ?\d+",
    re.IGNORECASE,
)
_NOT_IN = re.compile(
    r"(?<![\w./])[A-Za-z_]\w*(?:\.\w+){2,12}['\"]? (?:is |was |are )?(?:not (?:found |present )?in|missing (?:from|in)|absent (?:from|in))"
    r" (?:the )?\S{0,40}(?:checkpoint|ckpt|metadata|state[_ ]?dict|safetensors|index)",
    re.IGNORECASE,
)
_FEWER = re.compile(
    r"\b(\d[\d,]*) (?:tensors|params|parameters|keys|entries|weights) (?:in|of) (?:the )?\S*(?:model|state_dict|memory)\S*\W{1,3}(?:\w+ ){0,2}(\d[\d,]*)"
    r" (?:tensors |params |parameters |keys |entries |weights )?(?:in|of) (?:the )?\S*(?:metadata|checkpoint|ckpt|file|saved)",
    re.IGNORECASE,
)
#: Heads of a task, which another task than the one trained before makes anew.
_OF_A_TASK = re.compile(r"classifier|\bcls\b|pooler|qa_outputs|score|position_ids|num_batches_tracked|rotary_emb|inv_freq|attn\.bias|masked_bias|\bfc\.|\bhead\b", re.I)  # fmt: skip
_WRAPPED = re.compile(
    r"base_model\.model|_fsdp_wrapped_module|_orig_mod|_orig_module|_forward_module|_flat_param|lora_[AB]|(?<![\w.])module\.\w"
    r"|_checkpoint_wrapped|_fpw_module|\bxla_\w*module|_compiled_|adapter|\bdp_module"
)
#: Heads and buffers that differ by right when a pretrained model is given another task.
_BY_RIGHT = re.compile(r"classifier|\bcls\b|lm_head|pooler|qa_outputs|score|position_ids|\bhead\b|num_batches_tracked|rotary_emb|masked_bias|attn\.bias|fc\.|vocab_projector|vocab_transform|vocab_layer_norm|nsp|seq_relationship|predictions|logit_scale|inv_freq|relative_attention_bias", re.I)  # fmt: skip
_LISTED = re.compile(r"[\"']([A-Za-z_][\w.]{3,200})[\"']")
_DOTTED = re.compile(r"(?<![\w./])[A-Za-z_]\w*(?:\.\w+){2,12}(?![\w/])")
_A_FILE = re.compile(r"\.(?:pt|pth|bin|ckpt|safetensors|npz|msgpack)$")
_DEEP = re.compile(r"\.\d+\.")
_NONE = re.compile(
    r"(?:missing|unexpected)[_ ]keys?\W{0,4}(?:=|:)?\s*(?:\[\s*\]|set\(\)|\{\s*\}|none|0\b)|all keys matched|no (?:missing|unexpected)"
    r"|missing_keys=\[\], unexpected_keys=\[\]",
    re.IGNORECASE,
)
_OWN = re.compile(r"\bat (?:\./|\.\./|/|out|output|checkpoint|ckpt|save|runs?/|exp|results?|work|tmp|model_?out|final|trained|finetun)|checkpoint-\d", re.I)  # fmt: skip
_SAME_AS_BASE = re.compile(
    r"(?:identical|equal|the same|same|bit-?identical|unchanged|matches|no different|no difference)\b.{0,60}\b(?:base|pretrained|original|initial|before (?:training|finetuning|fine-tuning)|untrained)\b"
    r"|\b(?:base|pretrained|original) (?:model|weights|checkpoint)\b.{0,40}\b(?:identical|equal|same|diff\w* ?[:=]? ?0(?:\.0+)?(?:e[+-]?\d+)?\b)"
    r"|(?:max|mean|l2|abs|total|rel)\S* ?(?:abs\w*|rel\w*|l2)? ?(?:diff\w*|delta|distance|change|error)\b.{0,40}(?:base|pretrained|initial|before)\w*(?: \w+)?\W{1,4}0(?:\.0+)?(?:e[+-]?\d+)?(?!\.?\d)"
    r"|(?:checkpoint|saved|reloaded|adapter|lora\S*)\b.{0,60}\b(?:has no effect|all zeros?|are zero|equals? (?:the )?(?:base|initial|init)|is the base model)"
    r"|== (?:the )?(?:base|pretrained|original)\b.{0,40}\bTrue\b|\b0 (?:of|/) ?\d+ (?:tensors|parameters|weights|keys) (?:differ|changed)"
    r"|(?:checkpoint|weights|parameters) .{0,30}hash .{0,30}(?:unchanged|same as|equals)",
    re.IGNORECASE,
)
_OF_A_MODEL = re.compile(
    r"model|output|weight|checkpoint|adapter|lora|predict|generat|logit|tensor|param|eval|loss|acc",
    re.I,
)
#: Weights that a step did not change are those of a wrong optimizer, saved or not.
_OF_A_STEP = re.compile(r"\b(?:changed|differ)\b.{0,24}\b(?:step|steps|update|backward)\b", re.I)
_OF_A_FILE = re.compile(r"checkpoint|saved|load|adapter|lora|base|pretrained", re.IGNORECASE)
_NOT_SAID = re.compile(r"\b(?:not|no longer|isn't|aren't|differs?|different) (?:the )?(?:identical|equal|same)\b|initiali[sz]\w+ from the same", re.I)  # fmt: skip


@detector
class EqualsBase(OutputDetector):
    """What was saved is, or loads as, the model before the training."""

    NAME, CATEGORY = "checkpoint_equals_base", "C3"
    SOURCE = (
        "public cases checkpoint_equals_base (huggingface/transformers#36004, #29659): keys carry a "
        "wrapper's or adapter's name and are left out at loading. A new head of a pretrained "
        "model is missing by right, and does not count"
    )

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        said = [
            x
            for x in log.matching(
                _SAME_AS_BASE,
                5,
                "base",
                "pretrained",
                "original",
                "initial",
                "init",
                "before",
                "untrained",
                "zero",
                "no effect",
                "differ",
                "changed",
                "hash",
            )
            if not _NOT_SAID.search(x.text)
            and _OF_A_MODEL.search(x.text)
            and not (_OF_A_STEP.search(x.text) and not _OF_A_FILE.search(x.text))
        ]
        lines = [x for x in self._keys(log) if x not in said] + said
        if not lines:
            return None
        evidence, at = quote(in_order(lines))
        return Sighting(
            "trained weights are left out when the checkpoint is loaded",
            evidence,
            "Unwrap the model before it is saved and compare the saved names, and the sum of one "
            "trained tensor, with the model in memory.",
            threshold="any trained weight that is not restored",
            at=at,
        )

    @staticmethod
    def _keys(log: LogLook) -> list[Line]:
        found = []
        place = {line.no: i for i, line in enumerate(log.lines)}
        for line in log.having(
            "key",
            "were not",
            "loaded 0",
            "matched 0",
            "restored 0",
            "0 of",
            "0/",
            "0 /",
            "not in",
            "not found",
            "not present",
            "missing",
            "absent",
            "tensors in",
            "tensors of",
            "keys in",
        ):
            text, i = line.text, place[line.no]
            if (m := _FEWER.search(text)) and number(m[2]) < number(m[1]):
                found.append(line)
                continue
            if (m := _NOT_IN.search(text)) and not _BY_RIGHT.search(m[0]) and _DEEP.search(m[0]):
                found.append(line)
                continue
            if not _KEYS.search(text) or (_NONE.search(text) and "['" not in text):
                continue
            names = [n for n in _LISTED.findall(text) if not _A_FILE.search(n)]
            for after in log.lines[i + 1 : i + 9]:  # lists may be printed a name a line
                if names or not re.match(r"^\s*[-\[\"']", after.text):
                    break
                names += _LISTED.findall(after.text) or re.findall(
                    r"^\s*-?\s*([\w.]{4,})", after.text
                )
            if not names and "." in text:
                names = _DOTTED.findall(text)
            if "newly initialized" in text and _OWN.search(text):
                # Of a checkpoint of one's own nothing may be missing but another task's head.
                if any(not _OF_A_TASK.search(n) for n in names):
                    found.append(line)
                continue
            body = [n for n in names if not _BY_RIGHT.search(n)]
            deep = [n for n in body if _DEEP.search(n) and n in _missing(text, names)]
            wrapped = [n for n in body if _WRAPPED.search(n)]
            loaded_none = re.search(r"\b0 ?(?:of|/) ?\d+|(?:loaded|matched|restored) 0", text)
            own = _OWN.search(text) or "resum" in text or "restor" in text
            if (
                wrapped
                or loaded_none
                or (deep and (own or "_IncompatibleKeys" in text))
                or (not names and _counts_many(text) and not _NONE.search(text))
            ):
                found.append(line)
        return found[:5]


def _missing(text: str, names: list[str]) -> list[str]:
    """The names that the model lacks; what a checkpoint has besides may be there by right."""
    before, found, after = text.partition("unexpected_keys")
    if not found:
        return names
    return _LISTED.findall(after if "missing" in after and "missing" not in before else before)


def _counts_many(text: str) -> bool:
    """Whether a line counts keys that are missing, many of them: ``missing keys: 291``."""
    m = re.search(r"(?:missing|unexpected)[_ ](?:adapter |lora )?keys?\W{1,4}(\d+)\b|\b(\d+) (?:missing|unexpected) (?:adapter |lora )?keys|load\w*.{0,24}\b(\d+) missing", text, re.I)  # fmt: skip
    return bool(m and int(next(g for g in m.groups() if g)) >= 5)


_FILE = re.compile(
    r"checkpoint|\bckpt\b|\bshards?\b|safetensors|\.(?:pt|pth|bin|ckpt|distcp|msgpack|npz|h5|orbax)\b|pytorch_model|\bsaved?\b|\bsaving\b|\bwrote\b|\bon disk\b|state_dict|optimizer state",
    re.IGNORECASE,
)
_EXPECTED = re.compile(
    r"\b(?:expected|should be|instead of|of|vs\.?|but|reference|full|original|base|source|pretrained|want(?:ed)?|model (?:is|has|size))\b",
    re.IGNORECASE,
)
_ZERO = re.compile(
    r"\b(?:wrote|saved|has|holds|with) 0 (?:shards|tensors|files|keys|bytes)\b"
    r"|(?<![\w.])0(?:\.0+)?\s?(?:bytes|byte|[KMGT]i?B|B)\b|\bzero[- ]?(?:bytes?|length|size)|\b(?:is|are|was|were) empty\b|\bempty (?:shards?|files?|checkpoint)|size\W{1,3}0\b",
    re.IGNORECASE,
)
#: Files that the libraries write weights to; with these names no model is as small as this.
_OF_A_MODEL_FILE = re.compile(r"(?:^|/)(?:adapter_model|pytorch_model|model|diffusion_pytorch_model)\.(?:safetensors|bin)$")  # fmt: skip
_SHARDS = re.compile(r"\b(\d{1,5}) ?(?:/|of|out of) ?(\d{1,5}) (?:\w+ )?shards?\b(?: files?)?(?: (?:were|are|was))? (?:found|written|saved|present|on disk|exist)", re.I)  # fmt: skip
_NO_NUMBERS = re.compile(r"tensor\(\[\]|(?:size|Size)\(\[0\]\)")
_OF_A_STATE = re.compile(r"(?:state|ckpt|checkpoint).{0,120}\.(?:weight|bias)\b|\.(?:weight|bias)\b.{0,80}(?:tensor\(\[\]|Size\(\[0)")  # fmt: skip
_FEW_BYTES = re.compile(r"\b(?:adapter_model|pytorch_model|model|optimizer)\.(?:safetensors|bin|pt)\b\W{0,3}(?:is|has|:)?\W{0,3}(?<!\d)\d{1,4} bytes\b", re.I)  # fmt: skip
TINY = 10_000


def _tiny(size: str) -> bool:
    factor = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(size[-1:], 1.0)
    return number(size.rstrip("KMGT")) * factor < TINY


_LS = re.compile(
    r"^[-l][rwx-]{9}\S?\s+\d+\s+\S+\s+\S+\s+(\d+(?:\.\d+)?[KMGT]?)\s+(?:.*?\s)?(\S+)$|^(\d+(?:\.\d+)?[KMGT]?)\s+(\S+)$"
)
_WORDS = (
    "checkpoint", "ckpt", "shard", "safetensors", ".pt", ".bin", ".distcp", ".msgpack", ".npz", ".h5",
    "orbax", "pytorch_model", "save", "saving", "wrote", "state", "on disk",
)  # fmt: skip
_BIG_FILE = re.compile(r"\.(?:pt|pth|bin|ckpt|safetensors|distcp|msgpack|npz|h5)\b|shard", re.I)
_SMALL_BY_RIGHT = re.compile(r"\bmemory|\bram\b|\bhbm|gpu|cache|download|dataset|batch|usage|log|event|loss|free|speed|/s\b", re.I)  # fmt: skip


@detector
class CheckpointTooSmall(OutputDetector):
    """A checkpoint's files are empty or smaller than the model."""

    NAME, CATEGORY = "checkpoint_size", "C3"
    SOURCE = (
        "public cases checkpoint_size (huggingface/transformers#32310: 1.1 GB of 8.8; pytorch/xla#7118: "
        "0 bytes). Ours: less than 90 % of what the log expects, shards of one checkpoint that "
        "differ 10 times, or an empty file"
    )

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        lines = self._empty(log) or self._fewer(log) or self._short(log) or self._uneven(log)
        if not lines:
            return None
        evidence, at = quote(lines)
        return Sighting(
            "a checkpoint is empty or smaller than the model",
            evidence,
            "Let every process take part in saving, and gather the full state before one of "
            "them writes it; then load it and compare one tensor.",
            threshold="empty, or less than 90 % of the size expected",
            at=at,
        )

    @staticmethod
    def _empty(log: LogLook) -> list[Line]:
        found = CheckpointTooSmall._no_numbers(log)
        for line in log.having(*_WORDS):
            text = line.text
            listed = _LS.match(text.strip())
            if listed:
                size, name = (listed[1] or listed[3]), (listed[2] or listed[4])
                empty = size.strip("KMGT") in ("0", "0.0")
                if (_BIG_FILE.search(name) and empty) or (
                    _OF_A_MODEL_FILE.search(name) and _tiny(size)
                ):
                    found.append(line)
            elif (
                _FILE.search(text)
                and (_ZERO.search(text) or _FEW_BYTES.search(text))
                and not _SMALL_BY_RIGHT.search(text)
            ):
                found.append(line)
        return found

    @staticmethod
    def _fewer(log: LogLook) -> list[Line]:
        """The last count of shards that were written or found, if it is not all of them."""
        counts = [(m, x) for x in log.having("shard") if (m := _SHARDS.search(x.text))]
        if counts and int(counts[-1][0][1]) < int(counts[-1][0][2]):
            return [counts[-1][1]]
        return []

    @staticmethod
    def _no_numbers(log: LogLook) -> list[Line]:
        """A weight of a checkpoint that is shown, and has no numbers in it."""
        previous: Line | None = None
        for line in log.lines if log.having("tensor([]", "size([0])") else ():
            near = f"{previous.text if previous else ''} {line.text}"
            if _NO_NUMBERS.search(line.text) and _OF_A_STATE.search(near):
                return [previous, line] if previous else [line]
            previous = line
        return []

    @staticmethod
    def _short(log: LogLook) -> list[Line]:
        for line in log.having(*_WORDS):
            text = line.text
            if not _FILE.search(text) or _SMALL_BY_RIGHT.search(text):
                continue
            found = sizes(text)
            if len(found) < 2:
                continue
            (size, _, at), (other, _, then) = found[0], found[1]
            between = text[at:then]
            if "expected" in text[:at].lower() and not _EXPECTED.search(between):
                size, other = other, size
            elif not _EXPECTED.search(between) and not re.fullmatch(r"\S{1,12} ?/ ?", between):
                if (
                    log.excerpt
                    and re.fullmatch(r"\S{1,8} ?\S{0,3} ?\(", between)
                    and 10 * size < other
                ):
                    return [line]  # 1.2 KB (33 MB on the GPU)
                continue
            if size < 0.9 * other:
                return [line]
        return []

    @staticmethod
    def _uneven(log: LogLook) -> list[Line]:
        """Shards of one checkpoint, by their names, whose sizes are far apart."""
        shards: dict[str, list[tuple[float, Line]]] = {}
        for line in log.having(*_WORDS):
            m = re.search(r"(\S{0,80}?(?:rank|shard|host|process|__)\D{0,2})(\d+)\D\S*", line.text)
            found = sizes(line.text)
            if m and found and _FILE.search(line.text) and not _SMALL_BY_RIGHT.search(line.text):
                shards.setdefault(re.sub(r"\d+", "", m[1]), []).append((found[0][0], line))
        for items in shards.values():
            largest, smallest = max(items, key=lambda x: x[0]), min(items, key=lambda x: x[0])
            small = sum(size < 0.1 * largest[0] for size, _ in items)
            if len(items) >= 2 and small >= len(items) / 2:  # the last of equal shards is smaller
                return [largest[1], smallest[1]]
        return []
