"""Each rule of the risk scan: what it finds for sure (#!), what it guesses (#?), and what it leaves."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from core.risk import scan
from core.risk.rules import CATEGORIES, RULES
from core.risk.scan import Hit
from core.risk.tree import list_files

CASES = {
    "cuda-move": """
        import torch
        model.cuda()  #!
        batch = [t.cuda(0, non_blocking=True) for t in batch]  #!
        torch.cuda.synchronize()
        model.to(device)
    """,
    "cuda-device": """
        import torch as th
        device = th.device("cuda" if th.cuda.is_available() else "cpu")  #!
        x = th.zeros(3, device="cuda:0")  #!
        y = th.load("a.pt", map_location=f"cuda:{rank}")  #!
        if x.device.type == "cuda":  #!
            pass
        kinds = ["cpu", "cuda"]  #?
        state["cuda"] = 1
        print("cuda is nice")
        with th.autocast("cuda"):
            pass
    """,
    "device-choice": """
        from torch import cuda
        if cuda.is_available():  #!
            n = cuda.device_count()  #!
        mine.is_available()
    """,
    "cuda-seed": """
        import torch
        torch.manual_seed(0)
        torch.cuda.manual_seed_all(0)  #!
        g = torch.Generator(device="cuda")  #!
        h = torch.Generator()
    """,
    "cuda-api": """
        import torch
        torch.cuda.synchronize()  #!
        start = torch.cuda.Event(enable_timing=True)  #!
        t = torch.cuda.FloatTensor(3)  #!
        u = x.type("torch.cuda.HalfTensor")  #!
        torch.cuda.is_available()
        torch.cuda.manual_seed(1)
        s = torch.cuda.amp.GradScaler()
    """,
    "cudnn": """
        import torch
        from torch.backends import cudnn
        torch.backends.cudnn.benchmark = True  #!
        cudnn.deterministic = True  #!
        torch.backends.cuda.matmul.allow_tf32 = True  #!
        torch.set_float32_matmul_precision("high")  #!
    """,
    "pinned-memory": """
        from torch.utils.data import DataLoader
        loader = DataLoader(data, pin_memory=True)  #!
        other = DataLoader(data, pin_memory=False)
        x = x.to(device, non_blocking=True)  #!
        y = y.pin_memory()  #!
    """,
    "cuda-variables": """
        import os
        import torch
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"  #!
        os.environ.setdefault("NCCL_DEBUG", "INFO")  #!
        os.environ["OMP_NUM_THREADS"] = "1"
    """,
    "nvidia-tools": """
        import subprocess
        import pynvml  #!
        subprocess.run(["nvidia-smi", "-L"])  #!
        print("have a look at nvidia-smi")
    """,
    "cuda-amp": """
        import torch
        from torch.cuda.amp import autocast as ac, GradScaler
        with ac():  #!
            pass
        scaler = GradScaler()  #!
        with torch.autocast("cuda"):  #!
            pass
        with torch.autocast("cpu"):
            pass
        with torch.autocast(device_type=kind):  #?
            pass
        other = torch.amp.GradScaler(device=kind)  #?
    """,
    "data-parallel": """
        import torch.nn as nn
        model = nn.DataParallel(model)  #!
        model = nn.Linear(3, 3)
    """,
    "nccl": """
        import torch.distributed as dist
        dist.init_process_group("nccl")  #!
        dist.init_process_group("gloo")
    """,
    "compile-inductor": """
        import torch
        model = torch.compile(model)  #!
        model = torch.compile(model, backend="inductor", mode="max-autotune")  #!
        model = torch.compile(model, backend="openxla")
        model = torch.compile(model, **options)  #?
        pattern = re.compile("x")
    """,
    "cuda-library": """
        import torch
        from apex import amp  #!
        import flash_attn.flash_attn_interface  #!
        import deepspeed.ops as ops  #!
        from triton import language  #!
        import numpy
    """,
    "own-kernels": """
        import torch
        from torch_scatter import scatter  #?
        from detectron2.layers import nms  #?
    """,
    "cuda-extension": """
        from torch.utils.cpp_extension import CUDAExtension, load
        from torch.utils import cpp_extension
        ext = CUDAExtension("k", ["k.cu"])  #!
        mod = load(name="k", sources=["k.cpp", "k.cu"])  #!
        mod = cpp_extension.load(name="k", sources=files)  #?
    """,
    "cuda-options": """
        import torch
        from transformers import AutoModel, TrainingArguments
        m = AutoModel.from_pretrained("x", load_in_8bit=True)  #!
        m = AutoModel.from_pretrained("x", attn_implementation="flash_attention_2")  #!
        m = AutoModel.from_pretrained("x", attn_implementation="sdpa")
        a = TrainingArguments(optim="adamw_bnb_8bit")  #!
        o = torch.optim.AdamW(p, fused=True)  #!
    """,
    "fp16-option": """
        from accelerate import Accelerator
        from transformers import TrainingArguments
        import lightning as L
        a = TrainingArguments(out, fp16=True)  #!
        a = TrainingArguments(out, fp16=False)
        b = Accelerator(mixed_precision="fp16")  #!
        c = L.Trainer(precision="16-mixed")  #!
        d = L.Trainer(precision="bf16-mixed")
        e = Config(fp16=True)  #?
    """,
    "gpu-trainer": """
        import pytorch_lightning as pl
        t = pl.Trainer(accelerator="gpu", devices=2)  #!
        t = pl.Trainer(gpus=1)  #!
        t = pl.Trainer(accelerator="auto")
    """,
    "sync-batchnorm": """
        import torch
        m = torch.nn.SyncBatchNorm.convert_sync_batchnorm(m)  #!
        b = torch.nn.BatchNorm2d(3)
    """,
    "distributed": """
        import torch.multiprocessing as mp
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch import distributed
        distributed.init_process_group("gloo")  #!
        model = DDP(model)  #!
        mp.spawn(main, nprocs=4)  #!
    """,
    "collective": """
        import torch.distributed as dist
        dist.all_reduce(loss)  #!
        dist.barrier()  #!
        all_reduce(loss)
    """,
    "clip-before-reduce": """
        import torch
        import torch.distributed as dist
        def step(model, optimizer):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  #?
            for p in model.parameters():
                dist.all_reduce(p.grad)
            optimizer.step()
        def right(model, optimizer):
            for p in model.parameters():
                dist.all_reduce(p.grad)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        def only_logs(model, optimizer, loss):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            dist.all_reduce(loss)
    """,
    "clip-many": """
        import torch
        import torch.distributed
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  #?
    """,
    "tied-weights": """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                self.decoder.weight = self.embed.weight  #!
                self.weight = other.weight
                self.scale.weight = torch.nn.Parameter(x)
        model.lm_head.weight = emb.weight  #?
        model.tie_weights()  #?
    """,
    "checkpoint-save": """
        import torch
        torch.save(model.state_dict(), "a.pt")  #!
        torch.save({"m": {k: v.cpu() for k, v in model.state_dict().items()}}, "b.pt")
        torch.save(things, "c.pt")  #?
        torch.save(scheduler.state_dict(), "d.pt")  #?
    """,
    "checkpoint-load": """
        import torch
        a = torch.load("a.pt")  #!
        b = torch.load("a.pt", map_location="cpu")
        c = torch.load("a.pt", device)
        d = torch.load("a.pt", **more)
        e = json.load(f)
    """,
    "torchscript": """
        import torch
        m = torch.jit.script(m)  #!
        @torch.jit.script  #!
        def f(x):
            return x
    """,
    "dynamic-shape": """
        import torch
        from torch import nonzero
        i = nonzero(x)  #!
        j = torch.where(x > 0)  #!
        k = torch.where(x > 0, x, y)
        u = torch.unique(x)  #!
        s = x.masked_select(m)  #!
        n = x.nonzero()  #?
    """,
    "boolean-mask": """
        import torch
        a = logits[mask]  #?
        b = logits[labels != -100]  #?
        c = logits[~padding]  #?
        logits[labels == 0] = 0.0  #?
        d = logits[:, 0]
        e = frame[frame.label == 1]
        f = table["mask"]
        g = rows[index]
        h = frame[frame["label"] == 1]
    """,
    "varying-length": """
        import torch
        from torch.nn.utils.rnn import pad_sequence
        from transformers import DataCollatorWithPadding
        x = pad_sequence(rows)  #!
        c = DataCollatorWithPadding(tokenizer)  #!
        d = DataCollatorWithPadding(tokenizer, padding="max_length", max_length=128)
        t = tokenizer(texts, padding=True, truncation=True)  #?
        u = tokenizer(texts, padding="max_length")
        v = torch.nn.Conv2d(3, 3, 3, padding=1)
    """,
    "last-batch": """
        from torch.utils.data import DataLoader
        a = DataLoader(train, batch_size=32, shuffle=True)  #?
        b = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
        c = DataLoader(valid, batch_size=32)
    """,
    "host-read": """
        import torch
        def train(loader):
            for x in loader:
                loss = model(x)
                loss.backward()
                total += loss.item()  #?
                print(f"loss {loss}")  #?
                print(loss)  #?
                n = float(loss)  #?
                m = int(count)
            print(loss.item())
        @torch.no_grad()
        def evaluate(loader):
            for x in loader:
                right += (model(x) == 1).sum().item()  #?
        class Net(torch.nn.Module):
            def forward(self, x):
                return x[: lengths.max().item()]  #?
        def report(rows):
            for row in rows:
                print(row.item())
    """,
    "branch-on-value": """
        import torch
        for x in loader:
            loss = model(x)
            loss.backward()
            if torch.isnan(loss):  #!
                break
            if not torch.isfinite(loss).all():  #!
                continue
        if torch.isnan(loss):
            raise SystemExit
    """,
    "step-boundary": """
        import torch
        def train(loader):
            for x in loader:
                optimizer.zero_grad()
                model(x).backward()
                optimizer.step()  #!
                scheduler.step()
        class Env:
            def play(self):
                env.step()
    """,
    "lbfgs": """
        from torch import optim
        o = optim.LBFGS(p)  #!
        o = optim.SGD(p, lr=1)
    """,
    "optimizer-before-move": """
        import torch
        from torch.optim import AdamW
        def bad():
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  #!
            model.to(device)
        def guessed():
            optimizer = AdamW(groups(net, 0.1))  #?
            net = net.cuda()
        def good():
            model.to(device)
            optimizer = AdamW(model.parameters())
        def other():
            optimizer = AdamW(model.parameters())
            batch.to(device)
            model.to(torch.bfloat16)
        def branches(gpu):
            if gpu:
                optimizer = AdamW(model.parameters())
            else:
                model.to(device)
        def scheduled():
            s = torch.optim.lr_scheduler.StepLR(optimizer, 1)
            optimizer.to(device)
    """,
    "half": """
        import torch
        x = torch.zeros(3, dtype=torch.float16)  #!
        model.half()  #?
        if x.dtype == torch.float16:  #?
            pass
        y = torch.zeros(3, dtype=torch.bfloat16)
    """,
    "double": """
        import torch
        x = torch.zeros(3, dtype=torch.float64)  #!
        y = x.double()  #?
    """,
    "fallback-operator": """
        import torch
        import torch.nn as nn
        import torch.nn.functional as F
        a = torch.multinomial(p, 1)  #!
        b = nn.CTCLoss()  #!
        c = F.interpolate(x, scale_factor=2, mode="bicubic")  #!
        d = F.interpolate(x, scale_factor=2, mode="bilinear")
        e = torch.fft.rfft(x)  #!
        f = nn.Embedding(3, 3, max_norm=1.0)  #!
        g = nn.Embedding(3, 3)
        h = numpy.median(x)
    """,
    "sparse": """
        import torch
        e = torch.nn.Embedding(3, 3, sparse=True)  #!
        o = torch.optim.SparseAdam(p)  #!
        s = x.to_sparse()  #!
        t = torch.sparse.mm(a, b)  #!
    """,
    "mask-value": """
        import torch
        low = torch.finfo(torch.float32).min  #?
        ok = torch.finfo(scores.dtype).min
        a = scores.masked_fill(mask, -3.4e38)  #?
        b = scores.masked_fill(mask, -1e9)
        c = scores.masked_fill(mask, float("-inf"))
    """,
    "gradient-checkpointing": """
        import torch
        from torch.utils.checkpoint import checkpoint
        x = checkpoint(block, x)  #!
        model.gradient_checkpointing_enable()  #!
        a = Args(gradient_checkpointing=True)  #!
    """,
}


def _scan(tmp_path: Path, **files: str) -> list[Hit]:
    for name, text in files.items():
        path = tmp_path / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return scan(list_files(tmp_path)).hits


@pytest.mark.parametrize("name", CASES)
def test_a_rule_finds_what_it_should_and_no_more(name: str, tmp_path: Path) -> None:
    code = textwrap.dedent(CASES[name])
    hits = [h for h in _scan(tmp_path, code_dot_py=code) if h.rule == name]
    lines = enumerate(code.split("\n"), 1)
    expected = {(n, "#!" in line) for n, line in lines if "#!" in line or "#?" in line}
    assert {(h.line, h.sure) for h in hits} == expected
    assert all(h.source == code.split("\n")[h.line - 1].strip() for h in hits)
    assert {h.category for h in hits} == {RULES[name].category}


def test_every_rule_over_python_has_a_case() -> None:
    assert set(CASES) == {name for name, rule in RULES.items() if rule.look is not None}


def test_every_rule_speaks_in_sentences_and_has_a_category() -> None:
    for rule in RULES.values():
        assert rule.category in CATEGORIES
        assert rule.why.endswith(".") and rule.todo.endswith("."), rule.name
        assert not rule.title.endswith(".")


def test_a_faithful_migration_has_no_sure_hit(tmp_path: Path) -> None:
    code = """
        import torch
        import torch_xla

        def train(model, loader):
            device = torch_xla.device()
            model = model.to(device)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            for x, y in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
                loss.backward()
                optimizer.step()
                torch_xla.sync()
    """
    assert [h for h in _scan(tmp_path, t_dot_py=textwrap.dedent(code)) if h.sure] == []


def test_names_are_followed_through_assignments_and_try(tmp_path: Path) -> None:
    code = """
        import torch
        try:
            from apex.parallel import DistributedDataParallel as DDP
        except ImportError:
            from torch.nn.parallel import DistributedDataParallel as DDP
        Fn = torch.nn.functional
        model = DDP(model)
        x = Fn.grid_sample(a, b)
    """
    hits = {(h.rule, h.line) for h in _scan(tmp_path, a_dot_py=textwrap.dedent(code))}
    assert {("distributed", 8), ("fallback-operator", 9), ("cuda-library", 4)} <= hits


def test_a_name_that_is_given_anew_is_no_module_any_more(tmp_path: Path) -> None:
    code = """
        import torch
        import model
        import net
        model = model.Net()
        model.cuda()
        def train(net):
            net.cuda()
        torch = wrap(torch)
        torch.cuda.synchronize()
    """
    hits = {(h.rule, h.line) for h in _scan(tmp_path, a_dot_py=textwrap.dedent(code))}
    assert hits == {("cuda-move", 6), ("cuda-move", 8), ("cuda-api", 10)}
