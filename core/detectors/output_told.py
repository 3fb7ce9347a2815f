"""What a few lines tell in words: the symptom itself, as people write it beside a log.

An excerpt is read, and nothing longer: in a whole log the numbers speak, and its words are of many
things. What is told is suspected, and speaks where no number does.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from core.detectors.base import OutputDetector, Sighting, detector
from core.detectors.output_look import Line, LogLook, quote

#: Longest line that is read.
LINE_CHARS = 600


@dataclass(frozen=True, slots=True)
class _Kind:
    """A symptom: what it is taken for, what to do, and its words, all of one line."""

    category: str
    title: str
    next_step: str
    patterns: tuple[re.Pattern[str], ...]
    but: re.Pattern[str] | None = None

    def says(self, text: str) -> bool:
        """Whether a line has the words; names such as ``w_before`` are words, too."""
        texts = {text, text.replace("_", " ")}
        found = any(p.search(x) for p in self.patterns for x in texts)
        return found and not (self.but and any(self.but.search(x) for x in texts))


def _kind(category: str, title: str, next_step: str, *patterns: str, but: str = "") -> _Kind:
    made = tuple(re.compile(p, re.IGNORECASE) for p in patterns)
    return _Kind(category, title, next_step, made, re.compile(but, re.I) if but else None)


_P = r"(?:params?|parameters?|weights?|tensors?)"
_QUICK = r"(?:it|iter|iterations?|steps?|samples?|img|images?|batch(?:es)?|tokens?)/s"
#: From cause to consequence.
_KINDS: tuple[_Kind, ...] = (
    _kind(
        "C1", "the runtime took the host's CPU, or libraries do not fit",
        "Pin torch, torch_xla and libtpu to one release, set PJRT_DEVICE=TPU, and print the device of one parameter.",
        r"\blibtpu\S{0,4} (?:was |is )?(?:not found|missing|not installed|not available)\b.{0,40}\bcpu\b",
        r"(?:real_devices|device_hw|device_type)\b.{0,60}\bCPU\b(?::\d)?\W",
        r"\b(?:torch_xla|libtpu|jaxlib|torch)\b.{0,40}\b(?:built|compiled|made) (?:for|with|against)\b.{0,40}\b(?:found|got|but|have|has|installed|running)\b",
        r"\b(?:torch_xla|libtpu|jaxlib)\b.{0,30}\b(?:is|are) not installed\b",
        r"\b(?:xla|xla_device|devices)\b.{0,60}\(CPU\)",
    ),
    _kind(
        "C2", "the parameters are not updated",
        "Make the optimizer after the model has been moved to the device, and check one parameter before and after a step.",
        rf"\b0 ?(?:of|/|out of) ?\d+ (?:\w+ ){{0,2}}{_P}\b.{{0,30}}(?:chang|updat|mov)(?!.{{0,40}}(?:checkpoint|load|saved))",
        rf"\b{_P} (?:that )?(?:have |were |are )?(?:changed|updated|moved)\b\W{{1,4}}0(?:\b|/)(?!\.)",
        r"\b(?:equal|allclose|identical|same)\b.{0,60}\bbefore\b.{0,40}\bafter\b(?!.{0,40}(?:False|load|sav|mov|\.to\b))(?=.{0,80}(?:True|step|train|update|optim)|\W*$|[)\]])",
        rf"\b{_P}\b.{{0,40}}\b(?:exactly |bit-?)?(?:the )?(?:same|identical|equal|unchanged)\b.{{0,30}}\b(?:before and after|after|since)\b (?!load|sav|mov|\.to|the load|restor).{{0,24}}(?:train|step|update|epoch|optim|init)",
        r"max \|?[ΔδdD](?:elta)?[ _]?(?:w|p|theta|param\w*|weights?)\|?\W{1,4}0(?:\.0*)?(?:e[-+]?\d+)?(?![\d.])",
        r"\b(?:does not|doesn't|not|never) (?:learn(?:ing)?|train(?:ing)?|converg\w+)\b.{0,30}\b(?:on|with|under) (?:the )?(?:tpu|xla|neuron)",
        r"\bloss\b.{0,12}(?<![\w.])(\d+\.\d{3,})\s?(?:->|→|=>|to)\s?\1\b",
        r"\bgrad\b\S{0,4}\W{1,6}(?:is )?None\b",
        r"\boptim\w*\b.{0,30}\b0 (?:params|parameters|tensors|groups)\b",
        r"\bid\(.{0,60}(?:optim|group|param).{0,80}(?:!=|is not)",
        r"\boptim\w*\b.{0,60}\b(?:param_groups|params?|state)\b.{0,80}\bcpu\b(?!.{0,40}(?:offload|moved))",
        rf"\b{_P}\b.{{0,40}}\b(?:on|device\W{{1,3}}) ?cpu\b.{{0,60}}\b(?:batch|inputs?|data|training)\b.{{0,40}}\b(?:xla|tpu)",
        but=r"frozen|freez|teacher|\bmov(?:ing|ed)\b|transferr|\bcop(?:y|ied)\b|replica|ranks?\b|hosts?\b|offload|\bno\b.{0,12}(?:differ|chang)",
    ),
    _kind(
        "C2", "fewer chips or another device are used than asked for",
        "Start one process for each chip (torch_xla.launch, accelerate launch), give the program torch_xla.device(), and print world size and device in each.",
        r"\bdevice\b.{0,16}\bcpu\b.{0,24}\b(?:requested|asked|wanted|expected|instead of|should be|not)\b.{0,16}\b(?:tpu|xla|neuron)",
        r"\b(?:requested|asked for|wanted|expected)\b.{0,16}\b(?:tpu|xla|neuron)\w*\b.{0,32}\b(?:got|using|running on|is|device)\b.{0,8}\bcpu\b",
        r"\b(?:tpu|xla|neuron|chips?|cores?|accelerator)\b.{0,60}\b(?:continu\w+|running|runs|training|proceed\w+|falls?|fell)\b.{0,16}\bon (?:the )?(?:host'?s? )?cpu\b",
        r"(?:device[_ ]count|world[_ ]?size|num(?:ber of)?[_ ]devices|process[_ ]count|local[_ ]devices)\b\S{0,4}\W{1,6}1\b(?=.{0,30}(?:\bv\d\w{0,8}-(?:8|16|32|64|128)|expected [2-9]|instead of [2-9]|of [2-9]|should be [2-9]))",
        r"\bchips?\b.{0,40}\b(?:in use|used|busy|active)\b\W{1,3}1 (?:of|/) ?[2-9]\d*",
        r"\b(?:only )?(?:1|one) (?:of|out of|/) ?(?:the )?(?:[2-9]|\d\d+|four|eight) (?:tpu |xla )?(?:chips?|cores?|devices)\b.{0,30}\b(?:used|busy|active|works?|running|in use)",
        r"\b(?:chips?|cores?|others?|[1-9]\d*) (?:are |is |stay |sit )?(?:idle|unused)\b",
        r"\bdevice\b(?: used)?\W{1,4}cpu\b(?=.{0,60}\b(?:tpu|xla|neuron|requested|expected))|\baccelerator\.device\b\W{1,4}cpu\b",
        r"\bdistributed\w*(?:[ _](?:environment|type))?\W{1,3}(?:DistributedType\.)?NO\b(?=.{0,40}(?:tpu|v\d[ep]?-\d))",
        r"(?:\b(?:chip|core|device)[ :]?\d\W{1,3}(?:\w+ )?0(?:\.0+)? ?(?:GiB|GB|MiB|MB|%).{0,4}){2,}",
        r"\bxla devices?(?: seen| found)?\W{1,3}1\b(?!\d)",
        r"\b(?:tpu|matrix unit|mxu|chip)\b.{0,24}\b(?:util\w*|usage|load|duty)\b.{0,12}(?<![\d.])0(?:\.0+)? ?%",
        but=r"\bno (?:tpu|chips?) (?:is|are) idle|0 (?:idle|unused)",
    ),
    _kind(
        "C3", "tied weights are tied no more",
        "Tie the weights again after the move to the device, before the optimizer is made.",
        r"(?:lm_head|decoder|head)\S*.{0,24}!=.{0,24}(?:wte|embed|tok|encoder)|(?:wte|embed|tok|encoder)\S*.{0,24}!=.{0,24}(?:lm_head|decoder|head)",
        r"\bafter (?:the move|moving|\.?to\b).{0,40}\b(?:False|separate|distinct|different|two copies|not tied|untied)\b",
        r"\btie[ds]?\b.{0,40}\b(?:separate|distinct|different|two copies|no effect|gone|lost|broken)\b",
    ),
    _kind(
        "C3", "the checkpoint does not hold, or does not restore, the whole state",
        "Let every process take part in saving, load on the same wrapping, and compare names, step and one tensor with the model in memory.",
        r"\b(?:state_dict|checkpoint|ckpt|\.pt|\.bin|safetensors|adapter)\b.{0,24}\b(?:has|with|contains|holds|:|=) ?(?:only )?(?:0|no) (?:entries|keys|tensors|params|parameters|weights)\b",
        r"\boptim\w*(?:\.state|_state| state)\b.{0,30}\b(?:after|from|on)\b.{0,16}\b(?:load|resum|restor)\w*\b.{0,6}(?:\{\}|\[\]|empty|0 (?:entries|keys))",
        r"\b(?:global_?step|step|epoch)\b.{0,12}\bafter (?:the )?(?:resum|load|restor|restart)\w*\W{1,4}0\b",
        r"\bresum\w*\b.{0,40}\b(?:starts?|started|begins?|restart\w*) (?:again )?(?:at|from) (?:step|epoch)? ?0\b",
        r"\bmissing[_ ]keys\b.{0,200}(?:\.\.\.|…)\]? ?\(\d{2,}\)",
        r"\b(?:rank|shard|host|part)\S{0,3}\d+\S{0,12} (?:0|0 bytes|0B)(?= |$)(?=.{0,80}(?:rank|shard|host|part)|\W*$)",
        r"\bdu (?:-\w+ )?\S*(?:checkpoint|ckpt|out)\S*\W{1,4}\d(?:\.\d)?K\b",
        r"\b(?:saved|trained|finetuned|fine-tuned|checkpoint)\b.{0,60}\b(?:init|base|pretrained|original)\b.{0,40}\)\W{0,5}True\b",
        r"\b(?:save\w*|checkpoint|state_dict)\b.{0,40}\b(?:wrote|writes|holds?|has|contains?|saved|are|is)\b.{0,12}\bthe (?:initial|untrained|base|original|old|random) (?:weights|model|values)\b",
        r"\b(?:trained|saved) weights\b.{0,60}\b(?:not|never|don't|aren't)\b.{0,30}\b(?:saved|written|copied|moved|synced|get)\b",
        r"\bsaved? (\d+) (?:of|/) (?!\1\b)\d+ (?:tensors|params|parameters|keys|weights|shards)\b",
        r"\bsaved (\d+) (?:tensors|params|keys|weights)\b.{0,12}\b(?:model|memory|state_dict) has (?!\1\b)\d+",
    ),
    _kind(
        "C3", "gradients are clipped or scaled on the wrong side of the reduction",
        "Average the gradients (xm.reduce_gradients) before clip_grad_norm_, then step the optimizer without reducing again.",
        r"\bclip\w*\b.{0,60}\b(?:before|prior to|without) (?:the )?(?:all-?_?reduc|reduc|sync)\w*",
        r"\bnorm\b.{0,24}\b(?:before|per[- ]core|local)\b.{0,60}\b(?:clip\w*)\b.{0,60}\bafter (?:the )?all[-_]?reduc\w*",
        r"\b(?:per[- ]core|local|per[- ]replica)\b.{0,60}\bafter (?:the )?all[-_]?reduc\w*.{0,60}\bclip",
        r"\b(?:all[-_]?reduce|grad\w* (?:sync|reduction))\b.{0,16}\b(?:skipped|missing|disabled|not called|never (?:called|run))\b",
    ),
    _kind(
        "C3", "replicas are fed the same samples, or do not hold the same",
        "Give the DataLoader a DistributedSampler with the world size and rank of the run, and broadcast the parameters once before the training.",
        r"\b(?:rank|core|replica|process|worker|host) ?0\W{1,3}((?=.{0,24}\b(?:idx|ids?|ind\w+|batch|samples?|first|loss|data)\b).{6,60}?)[;,|]? ?(?:rank|core|replica|process|worker|host) ?1\W{1,3}\1(?=[;,|]| (?:rank|core|replica|process|worker|host)|\W*$)",
        r"\b(?:same|identical) (?:batch|samples|data|shard|order|shuffle\w*)\b.{0,40}\b(?:every|each|all|on|in) ?(?:where|ranks?|cores?|replicas?|processes|workers|hosts|epochs?)\b",
        r"\bdiffers? (?:on|in|across|between|for) (?:each|every|all|the) (?:cores?|ranks?|replicas?|hosts?|process(?:es)?|devices?)\b",
        r"\bset_epoch\b.{0,24}\b(?:not|never|missing)",
        but=r"\bseeds?\b|\bby right\b",
    ),
    _kind(
        "C3", "the metric is that of a part of the data, or counts samples twice",
        "Gather predictions and labels of all replicas before the metric is computed, and cut the sampler's padding.",
        r"\b(?:only )?(?:core|rank|replica|process|master|ordinal) 0\b.{0,16}\b(?:is|was|are)? ?(?:printed|reported|logged|counted|evaluated)\b",
        r"\b(?:metric|acc\w*|eval\w*|f1|score)s?\b.{0,40}\b(?:of|on|over|for|from) (?:one|a single|1) (?:core|chip|replica|process|shard)(?:'s)?\b",
        r"\b(?:duplicat\w+|padded|repeated) (?:samples|examples|predictions)\b.{0,40}\b(?:counted|metric|acc\w*|eval\w*)\b",
    ),
    _kind(
        "C4", "the graph is compiled again and again",
        "Give every batch the same shapes (pad to a fixed length) and keep changing Python numbers out of the graph.",
        r"\b(?:new |re-?)compil\w*\b.{0,24}\b(?:at|in|on) (?:steps?|iterations?|batch(?:es)?) \d+(?:, ?\d+){3,}",
        r"\b(?:every|each) (?:new |different |other )?(?:sequence |seq |input |batch )?(?:length|shape|size|len|bucket)\b.{0,24}\b(?:re-?)?compil",
        r"\b(?:re-?)?compil\w*\b.{0,30}\b(?:for )?(?:every|each) (?:new |different )?(?:sequence |input |batch )?(?:length|shape|size|step|batch|iteration)\b",
        r"\bcompil\w*\b.{0,20}\d+(?:\.\d+)? ?s\b.{0,12}step \d+(?:.{0,12}\d+(?:\.\d+)? ?s\b.{0,12}step \d+){2,}",
        r"MODULE_(\w{2,}).{0,24}MODULE_(?!\1\b)\w{2,}.{0,24}MODULE_\w{2,}",
        r"\bgraph hash\b.{0,20}step 1\W{1,3}(\w+)\b.{0,16}step 2\W{1,3}(?!\1)\w+",
        but=r"\b(?:no|never|0|without|avoid\w*|prevent\w*|may|can|would|could)\b.{0,20}compil",
    ),
    _kind(
        "C4", "the host reads values, or memory and time grow from step to step",
        "Call torch_xla.sync() once a step, read values every few steps as floats, and keep no lazy tensors across steps.",
        r"\b(?:memory|mem|ram|rss)\b.{0,40}\b(?:grows?|growing|grew|increas\w+|leaks?|leaking|climbs?|rises?|rising)\b(?!.{0,12}\bonly\b)",
        r"\b(?:grows?|growing|increas\w+|leak\w*)\b.{0,30}\b(?:host )?(?:memory|ram|rss)\b",
        r"\b(?:each|every|per) (?:step|iteration|epoch|batch)\b.{0,30}\b(?:slower|longer)\b|\b(?:slower|longer) (?:and \w+ )?(?:with |in |after )?(?:each|every) (?:step|iteration|epoch|batch)",
        r"\b(?:graph|ir|pending)\b.{0,24}\b(?:keeps? )?(?:grow\w*|accumulat\w+)\b.{0,30}\b(?:step|iteration|batch|epoch)",
        r"(?:\.item\(\)|mark_step\(\)|sync\(\))\W{0,3}(?:takes |took )?(?:[2-9]|\d\d+)(?:\.\d+)? ?s\b",
        r"\b\d+(?:\.\d+)? ?(?:x|times) slower\b.{0,30}\b(?:than|on|tpu|xla)",
        r"\bTrimIrGraph\b",
        r"\b(?:freez\w+|frozen|stuck|hang\w*|hung)\b|\bnever (?:gets?|goes|comes|returns?|moves?) (?:past|beyond|back|on)\b|\bthen nothing\b|\b(?:nothing|no output)\b.{0,12}\d+ ?(?:min|h\b|hours?)",
        rf"\bspeed\W{{1,3}}0(?:\.0+)? {_QUICK}",
        but=r"\b(?:params?|parameters|layers?|weights|backbone|encoder)\b.{0,24}\bfreez|frozen (?:layers?|weights?|params|parameters|backbone|encoder)|freez\w+ (?:layers?|weights?|params|parameters|(?:the )?(?:backbone|encoder))|limit|fraction|\bif\b|\bmay\b|\bcan\b|cache|avoid|prevent|\bloss\b.{0,12}stuck",
    ),
    _kind(
        "C5", "a value can't be right",
        "Compute it in float32 and compare with the CPU on the same input: sums in bf16, masks filled with a dtype's minimum, and random seeds that are constants do this.",
        r"\bisnan\(.{0,60}True\b|\b(?:has|contains|any) nan\b.{0,24}\bTrue\b",
        r"\bRuntimeWarning: (?:invalid value|overflow|divide by zero) encountered",
        r"\ball[- ](?:black|zeros?|nan) (?:images?|outputs?)|\bimages? (?:are|is|were|come out) (?:all |completely )?black\b|\(all black\)",
        r"\b(?:stays?|stuck|stops?|saturates?|stands)\b(?: still)? at (?:256|512|1024|2048|4096|8192|16384|32768|65504|16777216)(?:\.0*)?(?![\d.])",
        r"\b(?:bf16|bfloat16|fp16|float16|half)\b.{0,40}\b(?:256|2048|65504)(?:\.0*)? ?\+ ?1\b",
        r"\b(?:masks?|noise|dropout\w*|samples? drawn|random\w*|draws?)\b.{0,24}\b(?:identical|the same|equal|repeat\w*)\b.{0,24}\b(?:steps?|iterations?|calls?|runs?|epochs?|batch\w*)\b",
        r"(?=.{0,200}(?:rand|noise|drop|mask|sampl)).{0,80}(\[[^\[\]]{3,80}\])(?:.{1,24}\1){2,}",
        r"(?<![\d.,])16777216(?:\.0*)?(?![\d.,])",
        r"\bgrad(?:ient)?[ _]?norm\b\W{1,3}-?inf\b.{0,40}\b(?:skip|each|every)",
        r"\boverflow\w*\b.{0,24}-(?:2147483648|9223372036854775808)\b",
        r"\b(?:cross[- ]entropy|nll)\b.{0,16}(?<![\w.])-\d+\.\d|\bloss\W{1,3}-\d+(?:\.\d+)?\b.{0,16}\bcross[- ]entropy\b",
        r"\b(?:max|min|abs max|absmax)\b\W{1,3}-?\d(?:\.\d+)?e\+?(?:3[3-9]|[4-9]\d)\b",
        but=r"attention|key_padding|\b(?:size|length|dim\w*|limit|seq\w*|context) (?:stays|is stuck|stops)|nan_to_num|no nan|without nan",
    ),
)  # fmt: skip


@detector
class Told(OutputDetector):
    """A few lines tell the symptom in words."""

    NAME, CATEGORY = "told", "C4"
    SOURCE = (
        "ours, of excerpts: symptoms as maintainers' threads name them (pytorch/xla, Lightning, "
        "transformers); what is told speaks only where no detector that measures does"
    )

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        if not log.excerpt:
            return None
        lines = [x for x in log.lines if x.text.strip() and len(x.text) <= LINE_CHARS]
        for kind in _KINDS:
            found: list[Line] = [x for x in lines if kind.says(x.text)]
            if not found and kind.category == "C2":
                found = self._devices(lines) or self._as_before(lines)
            if not found and kind.category == "C3":
                found = self._counts(lines)
            if not found and kind.category == "C4":
                found = self._times(lines) or self._swells(lines)
            if found:
                evidence, at = quote(found)
                return Sighting(
                    f"{kind.title} (suspected: told in words)",
                    evidence,
                    kind.next_step,
                    category=kind.category,
                    threshold="the words of a few lines that were quoted",
                    at=at,
                )
        return None

    @staticmethod
    def _as_before(lines: list[Line]) -> list[Line]:
        """Numbers of a weight before and after a training, all of them the same."""
        for old, new in itertools.pairwise(lines):
            both = f"{old.text} {new.text}"
            if not _OF_WEIGHTS.search(both) or _OTHER_MOVE.search(both):
                continue
            if re.search(r"\bbefore\b", old.text, re.I) and re.search(r"\bafter\b", new.text, re.I):
                numbers = _REALS.findall(old.text)
                if numbers and numbers == _REALS.findall(new.text):
                    return [old, new]
        gpu = [x for x in lines if re.search(r"\bGPU available: False", x.text)]
        tpu = [x for x in lines if re.search(r"\bTPU available: False", x.text)]
        return [gpu[0], tpu[0]] if gpu and tpu else []  # Lightning found neither of them

    @staticmethod
    def _counts(lines: list[Line]) -> list[Line]:
        """How many tensors a checkpoint and the model have, where the numbers differ."""
        saved = [(m, x) for x in lines if (m := _IN_FILE.search(x.text))]
        held = [(m, x) for x in lines if (m := _IN_MODEL.search(x.text))]
        if saved and held and int(saved[0][0][1]) < int(held[0][0][1]):
            return [saved[0][1], held[0][1]]
        return []

    @staticmethod
    def _times(lines: list[Line]) -> list[Line]:
        """Times of steps or epochs that all are as long as the first, which compiles, or grow."""
        times: list[tuple[float, Line]] = []
        for line in lines:
            for m in _TOOK.finditer(line.text):
                unit = 60.0 if m[2].startswith("m") and m[2] != "ms" else 1.0
                times.append((float(m[1]) * unit, line))
        values = [v for v, _ in times]
        if len(values) < 3:
            return []
        more = [b - a for a, b in itertools.pairwise(values)]  # time since the start grows evenly
        grows = min(more) > 0 and values[-1] >= 2.5 * values[0] and more[-1] >= 1.5 * more[0]
        epochs = any(re.search(r"epoch", x.text, re.I) for _, x in times)
        each = (
            not epochs
            and min(values) >= LONG_S
            and 0.7 * values[0] <= values[-1] <= 1.5 * values[0]
        )
        # Some steps are quick, so the graph is there: the others compile again.
        later = [v for v in values[1:] if v >= LONG_S and v >= 0.5 * values[0]]
        again = not epochs and len(later) >= 3 and min(more) < 0
        return list(dict.fromkeys(x for _, x in times)) if grows or each or again else []

    @staticmethod
    def _swells(lines: list[Line]) -> list[Line]:
        """Memory that is said to go from one size to twice as much or more."""
        for line in lines:
            m = _FROM_TO.search(line.text)
            if m and 0 < 2 * float(m[1]) <= float(m[2]):
                return [line]
        return []

    @staticmethod
    def _devices(lines: list[Line]) -> list[Line]:
        """The model's device in one line, and another one of the batch in the next ones."""
        model = [
            x for x in lines if _MODEL_ON_CPU.search(x.text) and not _ON_ITS_WAY.search(x.text)
        ]
        batch = [x for x in lines if _BATCH_ON_CHIP.search(x.text)]
        return [model[0], batch[0]] if model and batch else []


_OF_WEIGHTS = re.compile(
    r"\b(?:weights?|params?|parameters?|emb\w*|bias|conv\w*|layer\w*|fc\d?)\b", re.IGNORECASE
)
_OTHER_MOVE = re.compile(
    r"\b(?:load\w*|sav\w*|mov\w*|restor\w*|reload\w*|clip\w*|frozen)\b|\.to\(", re.IGNORECASE
)
_REALS = re.compile(r"(?<![\w.])-?\d+\.\d{3,}(?:e[-+]?\d+)?")
_IN_FILE = re.compile(r"\b(?:checkpoint|ckpt|saved|file|adapter)\b[^\d\n]{0,24}\b(\d{1,7}) ?(?:tensors|keys|params|parameters|entries|weights)?\b(?<=[a-z\d])(?=.{0,60}|$)", re.I)  # fmt: skip
_IN_MODEL = re.compile(r"\bmodel\b[^\d\n]{0,24}\b(?:tensors|keys|params|parameters|entries|weights|has|holds)\b\W{0,3}(\d{1,7})\b", re.I)  # fmt: skip
#: A step's or an epoch's number, and how long it took.
_TOOK = re.compile(r"\b(?:(?:step|batch|iter(?:ation)?|epoch) ?#?\d+|\d(?:st|nd|rd|th) (?:step|batch|iteration|epoch)|first (?:step|batch|epoch))\b[^\d\n]{0,12}(?:\([^)\n]{1,20}\) ?)?(\d+(?:\.\d+)?) ?(s|secs?|seconds|mins?|minutes)\b", re.I)  # fmt: skip
_FROM_TO = re.compile(r"\b(?:RAM|RSS|host mem\w*|mem(?:ory)?)\b(?! (?:limit|budget)).{0,24}?(\d+(?:\.\d+)?) ?[KMGT]?i?B? ?(?:->|→|to) ?(\d+(?:\.\d+)?) ?[KMGT]i?B\b", re.I)  # fmt: skip
#: Seconds of a step that only a compilation explains, where each takes as long. Ours.
LONG_S = 10.0
_MODEL_ON_CPU = re.compile(r"\b(?:model|param\w*|weights?|module|optim\w*)\b.{0,40}\bdevice\b.{0,16}\bcpu\b", re.I)  # fmt: skip
_BATCH_ON_CHIP = re.compile(r"\b(?:training|running|runs|using)\b.{0,16}\b(?:xla|tpu)|\b(?:batch|inputs?|data|images?|labels?|model|param\w*)\b.{0,40}\bdevice\b.{0,16}\b(?:xla|tpu)\b", re.I)  # fmt: skip
_ON_ITS_WAY = re.compile(
    r"\b(?:load\w*|mov\w*|before|offload\w*|initial\w*|copied)\b|\.to\(", re.IGNORECASE
)
