"""What a few lines are about, by the words in them: the last that is asked, where nothing else speaks.

Each topic is a list of words with weights, a word counting once. The topic with the most weight is
what an excerpt is about, if it has enough, is clearly before the next one, and if the excerpt
complains: it says *not*, *never*, *only*, *expected*, or sets numbers beside each other.
"""

from __future__ import annotations

import re

from core.detectors.base import OutputDetector, Sighting, detector
from core.detectors.output_look import Line, LogLook, is_loss, quote

#: Weight that a topic needs, and by how much it has to be before the next.
ENOUGH, AHEAD = 3.0, 0.5
#: Longest line that is read.
LINE_CHARS = 600

_TOPICS: dict[str, tuple[tuple[float, str], ...]] = {
    "C1": (
        (2.5, r"libtpu"), (2, r"\bversions?\b"), (2, r"\binstall\w*|\bpip\b|\bwheels?\b"), (1.5, r"\bjaxlib|\bjax\b"),
        (2, r"\bbuilt (?:for|with|against)|\bABI\b|\bundefined\b"), (2, r"default[_ ]backend|\bdevice[_ ]type\b|PJRT"),
        (1, r"\btorch[ =]*\d+\.\d"), (1, r"\btorch_xla[ =]*\d+\.\d"), (2, r"\bdrivers?\b|\bruntime\b"), (1.5, r"\b(?:XLA|xla|runtime|device)\b.{0,20}\bCPU\b"),
    ),
    "C2": (
        (2, r"\b(?:number of|num[_ ])devices\W{1,3}1\b|\b1 device\b"), (1.5, r"\bold (?:CPU )?model|\bparameter groups?\b"),
        (2, r"\b(?:params?|parameters?|weights?)\b.{0,50}\b(?:same|identical|equal|unchanged|constant|0\.0+\b|not)"),
        (2, r"\bbefore\b.{0,40}\b(?:step|update|train)|\b(?:step|update|train\w*)\b.{0,40}\bafter\b|\.step\(\)"),
        (1.5, r"\boptimi[sz]er\b"), (2.5, r"\bdevice\b.{0,12}\bcpu\b|\bon (?:the )?cpu\b|\bcpu\b.{0,24}\brequested"),
        (2, r"\bidle\b|\bunused\b|\butili[sz]ation|\bduty"), (2, r"\bnum_processes\b|\bprocesses? ?= ?1\b|\bxla devices\b|distributed\w*(?: environment)?\W{1,3}NO\b"),
        (1.5, r"\bchips?\b|\bcores?\b(?!.{0,12}(?:acc|loss))|\bTPU VM\b"), (1, r"\bv\d[ep]?-\d"), (1, r"\bexpected\b.{0,8}\d{3}"),
        (2.5, r"\b(?:loss|metrics?)\b.{0,24}\b(?:stays?|stuck|constant|flat|same|never|does not|doesn't|not)\b"), (2.5, r"\b(?:not|never|nothing) (?:learn\w*|train\w*|updat\w*)|\bgrad\w*\b.{0,24}\b(?:None|zero|0\.0+)(?![\d])"),
        (1, r"\.cuda\b|\bcuda\b"), (1.5, r"\bpretrained\b.{0,24}\b(?:equal|same)|\b(?:equals?|same)\b.{0,24}\bpretrained"),
    ),
    "C3": (
        (2, r"\bshare\b|\bwriter\b|\bwrote\b|\bmd5\b|\bhash\w*"), (2, r"\bsync_dist|\bdrift\w*|\bsharding\b|\bsharded\b|\bsplit across"), (1.5, r"\bprocesses\b|\bcores\b|\bhosts\b|\bon (?:core|rank|replica|host) \d"), (2, r"\bafter each save|\bsampler|\beval(?:uation)?\b.{0,20}\btwice"),
        (3, r"\bcheckpoint\w*|\bckpts?\b|state[_ ]dict|\.(?:pt|bin|safetensors|ckpt)\b"), (2, r"\bsav(?:e|ed|ing)\b"), (2.5, r"\b(?:re)?load(?:ed|ing)?\b|\bresum\w+|\brestor\w+|\brestart\w*"),
        (2, r"\badapters?\b|\blora\b|\bmerged?\b"), (4, r"\b(?:un)?ti(?:ed|e)\b|\btie_weights"), (2, r"\blm_head|\bembed\w*"), (3, r"\bclip\w*\b"),
        (2.5, r"\b(?:all-?_?)?reduc(?:e|ed|tion)\b|\bsync(?:ed|hroni[sz]ed)?\b(?!\()"), (2, r"\b(?:replicas?|ranks?)\b|\b(?:core|process|host|worker)[ :#]?\d"), (2, r"\bworld[_ ]size|\b[2-9]\d? (?:tpu )?(?:cores|chips|replicas|processes|devices)\b"),
        (3, r"\bsampler\b|\bset_epoch|\bshuffl\w+|\bduplicat\w+"), (2.5, r"\bschedul\w+|\b(?:effective )?lr\b.{0,24}\b(?:after|expected|resum|8x|times|scaled)"), (2, r"\bgather\w*|\bmesh_reduce"),
        (2, r"\b(?:samples|examples|predictions|images)\b|\bdata ?set\b|\btest set\b"), (2, r"\bmissing\b|\bunexpected\b|\bmatched\b"), (1, r"\bkeys?\b"), (2, r"\bshards?\b|\bsharded\b"),
        (2, r"\bEMA\b"), (2, r"\bbarrier|\bcollective|\brendezvous"), (1.5, r"\brunning_(?:mean|var)|\bbatch ?norm"), (2, r"\bparams?\b.{0,40}\b(?:TPU|xla|to\(device\)|\.to\()"), (1.5, r"\bgrad\w* norm|\bgrad_norm"),
        (2, r"\b\d+ times (?:lower|higher|per)|\bdivided by \d"), (2, r"\bper (?:process|core|replica|rank)\b|\brank 0 (?:only|reports)|\bcore 0\b"),
        (1.5, r"\bone\b.{0,10}\bcore|\b1 core\b|\bsingle core|\bon one\b"), (2, r"\bsame (?:batch|data|samples|order)"), (1.5, r"\bbase model|\bbase\b"),
    ),
    "C4": (
        (2, r"\brerun\w*|\bfirst step\b|\bwarm-?up run"), (1.5, r"\bIR\b|\bnodes\b|\bHLO\b"), (2, r"\bunroll\w*|\bloop\b|\bLSTM\w*|\bRNN\b"), (2, r"\b(?:hours?|minutes|min)\b"), (1, r"\bno (?:barrier|mark_step|sync)|\bwithout (?:barrier|mark_step|sync)"), (2, r"\bsteps together|\bgraph of"),
        (4, r"\b(?:re-?)?compil\w*|CompileTime"), (2, r"\bgraphs?\b|\bHLO\b|\bIR\b"), (2.5, r"mark_step|\bsync\(\)|\blazy"), (1.5, r"\bs/(?:it|step)\b|\bit/s\b|\b\d+(?:\.\d+)? ?(?:s|sec|min|minutes|h|hours)\b"),
        (2, r"\bslow(?:er|ly)?\b|\blonger\b|\btakes\b"), (2.5, r"\bhangs?\b|\bhung\b|\bstuck\b|\bfroze\w*|\bnever (?:ends|finish|return)|\bnot finished|\bno progress|\bnever\b.{0,12}(?:ends|stops)|\bdeadlock"),
        (2.5, r"\b(?:RAM|RSS|host memory|free -|swap|VmRSS)\b|\bfree -g"), (2, r"\.item\(\)|\bprint(?:ed|ing)?\b|\btransfers?\b|Transfer(?:From|To)"), (2, r"\b(?:seq\w*|input|batch) (?:len\w*|shape)|\blen \d|\bdynamic|\bpadd\w+|\bshapes?\b.{0,12}\bchang"),
        (2, r"\bpy-?spy|\bstack\b"), (1, r"\beach (?:step|token|epoch|batch)|\bevery (?:step|token|epoch|batch)"), (1.5, r"\bstep 1\b.{0,60}\bstep 2\b|\b1st\b.{0,40}\b2nd\b|\bepoch 1\b.{0,60}\bepoch 2\b.{0,60}min"), (2, r"MODULE_\d+.{0,60}MODULE_\d+"),
        (1.5, r"\bbackward\b|\bforward\b"), (1, r"\bcache\b"), (1.5, r"ExecuteTime|_local_scalar_dense"), (1.5, r"\bnodes\b"),
    ),
    "C5": (
        (3, r"\b[-+]?(?:nan|inf)\b"), (3, r"\b(?:all|every|each|0 of)\b.{0,24}\b(?:rows?|classes|elements|predictions?)\b"), (2.5, r"\bbf(?:loat)?16\b|\bfp16\b|\bfloat16\b|\bprecision\b|\bint(?:8|32|64)\b"), (3, r"aten::\w+"), (2, r"\bfall(?:s|ing)? ?back|\bnot lowered|\bon CPU\b|\bexecuted on\b"),
        (2.5, r"\b(?:softmax|argmax|topk|scatter\w*|index_\w+|gather\(|cumsum|cumprod|sort|std|var|matmul|einsum|conv\w*|interpolate|unique|nonzero|where|ctc\w*|\w+Loss|layer_?norm|gelu|exp|sum of|pool\w*|fft)\b"), (2, r"\b(?:cpu|gpu|cuda)\b.{0,60}\b(?:xla|tpu|neuron)\b|\b(?:xla|tpu|neuron)\b.{0,60}\b(?:cpu|gpu|cuda)\b"),
        (3, r"\brand\w*\b|\bseeds?\b|\bdropout\b|\bnoise\b|\bmasks?\b|\baugmentations?\b|\brng\b"), (2, r"\b(?:black|garbage|noise|wrong|incorrect|corrupt\w*)\b"), (2, r"\bzeros?\b"), (2, r"\boverflow|\bunderflow|\bsaturat"),
        (2.5, r"(?<![\d.])(?:256|2048|65504|16777216)(?:\.0?)?(?![\d.])"), (1.5, r"\b(?:outputs?|logits?|results?|values?|tensor\()"), (1.5, r"\bAUC\b|\bchance\b"), (1.5, r"\bdiff\w*\b"), (1.5, r"\bimages? (?:from|are|come)"),
    ),
    "C6": ((3, r"\bHBM\b.{0,40}(?:exceed|full|out of)"), (3, r"\bOOM\b|\bout of memory\b"), (2, r"\balloc\w*")),
}  # fmt: skip
_MADE = {
    topic: [(weight, re.compile(words, re.IGNORECASE)) for weight, words in listed]
    for topic, listed in _TOPICS.items()
}
#: Words of one who complains; and weaker ones, for which the words of the topic have to weigh more.
_COMPLAINS = re.compile(
    r"\b(?:not|never|nothing|wrong|bad|worse|lower than|broken|lost|missing|stuck|stays?|stopped|hangs?|slower|instead|expected|should|requested|mismatch\w*"
    r"|differs?|skipped|ignored|unchanged|fails?|idle|unused|garbage|leak\w*|although|but|despite|spikes?|explod\w+|diverg\w+|drift\w*|apart|collaps\w+|printed \d+ times|only|(?:9\d|100) ?% of|each (?:time|run|call|core|rank|process|rerun|epoch)|per (?:process|core|rank)|times (?:lower|higher|per)|again)\b|\w+n't\b|!=|\b\d{2,4}x\b",
    re.IGNORECASE,
)
#: A remark that a person has put behind or below what was printed.
_REMARKS = re.compile(
    r"^\W*\([a-z][^()]{8,}\)\W*$|\((?=[^()]*[a-z]{3} [a-z])[^()]{10,}\)\s*$|\s#\s+\S.{3,}$",
    re.IGNORECASE,
)
_WEAKLY = re.compile(
    r"\b(?:none|same|identical|equals?|different|constant|zeros?|twice|False|grow\w*|fell|drops?|without|was|vs\.?)\b|->|=="
    r"|(?<![\w.:])(?<!rank )0(?:\.0+)?(?![\w.:/])|\b(?:cpu|gpu)\b.{0,40}\d.{0,40}\b(?:tpu|xla)\b|\b(?:tpu|xla)\b.{0,40}\d.{0,40}\b(?:cpu|gpu)\b",
    re.IGNORECASE,
)
WEAKLY = 5.5
#: What an error without a category needs to be put under a topic.
UNCATEGORISED = 3.5
#: Where a line has a number and the one that was expected.
EXPECTED = 2.0
_PAIR = re.compile(
    r"(?<![\w.])(\d+(?:\.\d+)?(?:e[-+]?\d+)?)\b.{0,16}?\b(?:expected|should be|instead of|wanted|want)\b\D{0,12}?(\d+(?:\.\d+)?(?:e[-+]?\d+)?)",
    re.IGNORECASE,
)


def _not_as_expected(text: str) -> bool:
    m = _PAIR.search(text)
    return m is not None and abs(float(m[1]) - float(m[2])) > 0.1 * max(float(m[1]), float(m[2]))


_WELL = re.compile(
    r"\bexpect a few\b|\bpatience\b|\bearly[ _]stop|backend '(?:rocm|cuda|interpreter|METAL|metal)'|(?<![\w.])(\d[\d.]*\w{0,3})\W{1,3}expected \1(?!\w)|\bdiffers? by (?:step|epoch|rank)\b|\bteacher\b|\battention masks?\b|\b(?:finished|completed|done|success\w*|all keys matched|no (?:nan|missing|errors?|recompil\w*|differ\w*)|passed|ok|holds|agree)\b"
    r"|\bSome weights\b|\bDownloading\b|\bIS expected\b|\bdeprecat\w+|\bFutureWarning\b|\bfrozen\b|\bfreez\w+",
    re.IGNORECASE,
)
_TITLES = {
    "C1": ("versions or the runtime do not fit", "Pin torch, torch_xla and libtpu to one release, set PJRT_DEVICE=TPU, and print the device of one parameter."),
    "C2": ("the device is not used, or the parameters are not updated", "Print the device of one parameter and of one batch, and one parameter before and after a step; make the optimizer after the move."),
    "C3": ("saved state, replicas or a library do not agree with the model", "Compare names, counts and one tensor on both sides: file and memory, one replica and another, one chip and several."),
    "C4": ("lazy execution: compilations, reads by the host, or a graph that grows", "Run ten steps with PT_XLA_DEBUG_LEVEL=1, and compare compilations and transfers with the number of steps."),
    "C5": ("an operator or a number type gives wrong values", "Run the same input on the CPU in float32 and compare module by module."),
    "C6": ("memory", "Compare what is asked for with the device's memory."),
}  # fmt: skip


def topic_of(lines: list[str], enough: float = ENOUGH) -> str:
    """The category that a few lines are about, by their words; empty where that is not clear."""
    text = "\n".join(lines)
    plain = text.replace("_", " ")
    scores = {
        topic: sum(weight for weight, words in listed if words.search(text) or words.search(plain))
        for topic, listed in _MADE.items()
    }
    best, second = sorted(scores, key=lambda t: -scores[t])[:2]
    clear = scores[best] >= enough and scores[best] - scores[second] >= AHEAD
    return best if clear else ""


def _agrees(text: str) -> bool:
    """Whether a line sets the same numbers beside each other: ``2.01 (was 2.01)``."""
    numbers = _REALS.findall(text)
    if re.search(r"\bbefore\b.*\bafter\b", text, re.IGNORECASE):
        numbers += _WHOLES.findall(text)
    lists = _LISTS.findall(text)
    return (len(numbers) == 2 or len(lists) == 2) and (
        len(set(numbers)) == 1 or (bool(lists) and len(set(lists)) == 1)
    )


_REALS = re.compile(r"(?<![\w.])\d+\.\d{2,}(?![\w.])")
_WHOLES = re.compile(r"(?<![\w.])\d{2,}(?![\w.:/])")
_LISTS = re.compile(r"\[[^\[\]]{3,200}\]")


@detector
class AboutWords(OutputDetector):
    """A few lines complain, and their words are of one topic."""

    NAME, CATEGORY = "about", "C4"
    SOURCE = (
        "ours, of excerpts where no other detector speaks: words of one topic weigh 3 or more beside a word of "
        "complaint (5.5 beside a weaker one), half a point before the next topic"
    )

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        if not log.excerpt or log.ending.kind:
            return None
        # What a run prints of its steps is of many things: it complains of none.
        steps = {
            row.line.no
            for row in log.rows
            if row.step is not None
            and sum(is_loss(f.key) for f in row.fields)
            and len(row.fields) > 4
        }
        lines = [
            x
            for x in log.lines
            if x.text.strip() and len(x.text) <= LINE_CHARS and x.no not in steps
        ]
        said: list[Line] = [
            x for x in lines if _COMPLAINS.search(x.text) or _REMARKS.search(x.text)
        ]
        enough = ENOUGH if said else WEAKLY
        if any(_not_as_expected(x.text) for x in lines):
            enough = EXPECTED
        if not said and sum(r.step is not None for r in log.rows) > 1:
            return None  # steps of a run that goes on
        said = said or [x for x in lines if _WEAKLY.search(x.text)]
        if not said or any(_WELL.search(x.text) or _agrees(x.text) for x in lines):
            return None
        topic = topic_of([x.text for x in lines], enough)
        if not topic:
            return None
        title, next_step = _TITLES[topic]
        evidence, at = quote(said)
        return Sighting(
            f"{title} (suspected: by the words of a few lines)",
            evidence,
            next_step,
            category=topic,
            threshold=f"words of weight {enough:g}, {AHEAD:g} before the next topic",
            at=at,
        )
