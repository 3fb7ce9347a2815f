"""For each kind of tag: changes that must be tagged with it, and faithful twins that must not be tagged.

A change is a pair of texts that is replaced in ``programs.TRAIN``, or, with a path, a whole file.
"""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """``old`` is replaced by ``new`` for the change, and by ``twin`` for its faithful twin."""

    kind: str
    old: str
    new: str
    twin: str
    path: str = "train.py"
    sure: bool = True


CLIP = "                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
STEP = "                optimizer.step()\n"
ZERO = "                optimizer.zero_grad()\n"
EPOCH_END = "        scheduler.step()\n        accuracy = evaluate(model, val_loader)\n"
YAML = "train:\n  {}\n  log_every: 50\nmodel:\n  name: small\n"


def _yaml(kind: str, old: str, new: str, twin: str = "") -> Case:
    """A value of a YAML file; its twin is written otherwise, with a comment."""
    twin = YAML.format((twin or old) + "  # as before").replace("train:", "# settings\ntrain:")
    return Case(kind, YAML.format(old), YAML.format(new), twin, "conf/train.yaml")


CASES = [
    # clipping
    Case("clipping", CLIP, "", CLIP.replace("1.0", "max_norm=1")),
    Case("clipping", CLIP, CLIP.replace("1.0", "5.0"), CLIP.replace("1.0", "1.0, norm_type=2.0")),
    Case("clipping", CLIP + STEP, STEP + CLIP, "                print('clip')\n" + CLIP + STEP),
    Case("clipping", CLIP, CLIP.replace("grad_norm_", "grad_value_"), CLIP.replace("torch.nn.utils", "nn.utils")),
    Case("clipping", "            loss.backward()\n", "            nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
         "            loss.backward()\n", "            loss.backward()  # gradients\n"),
    _yaml("clipping", "max_grad_norm: 1.0", "max_grad_norm: 0.5", "max_grad_norm: 1"),
    # accumulation
    Case("accumulation", "ACCUMULATION = 4", "ACCUMULATION = 8", "ACCUMULATION = 2 * 2"),
    Case("accumulation", "            if (step + 1) % ACCUMULATION == 0:\n", "            if True:\n",
         "            if (step + 1) % 4 == 0:\n"),
    Case("accumulation", ZERO, "", ZERO.replace("()", "(set_to_none=True)")),
    Case("accumulation", "            loss.backward()\n" , "            loss.backward()\n            optimizer.zero_grad()\n",
         "            loss.backward()\n            xm.mark_step()\n"),
    _yaml("accumulation", "gradient_accumulation_steps: 4", "gradient_accumulation_steps: 1"),
    # batch size
    Case("batch size", 'batch-size", type=int, default=32', 'batch-size", type=int, default=16',
         'batch-size", default=32, type=int'),
    Case("batch size", "val_data, batch_size=64", "val_data, batch_size=128", "val_data, 64"),
    Case("batch size", "train_set, batch_size=args.batch_size,", "train_set, batch_size=args.batch_size // 4,",
         "train_set, args.batch_size,"),
    Case("batch size", "python train.py --batch-size 32\n", "python train.py --batch-size 8\n",
         "python  train.py \\\n  --batch-size=32\n", "run.sh"),
    Case("batch size", '{"train": {"per_device_train_batch_size": 8}}', '{"train": {"per_device_train_batch_size": 64}}',
         '{\n  "train": {\n    "per_device_train_batch_size": 8\n  }\n}', "args.json"),
    # learning rate
    Case("learning rate", 'lr", type=float, default=1e-3', 'lr", type=float, default=1e-2', 'lr", type=float, default=0.001'),
    Case("learning rate", "lr=args.lr", "lr=args.lr * 8", "lr = args.lr"),
    Case("learning rate", '"lr": 1e-4', '"lr": 1e-3', '"lr": 0.0001'),
    Case("learning rate", "    for epoch in range(args.epochs):\n",
         "    for group in optimizer.param_groups:\n        group['lr'] *= 2\n    for epoch in range(args.epochs):\n",
         "    # each epoch\n    for epoch in range(args.epochs):\n"),
    _yaml("learning rate", "lr: 3e-4", "lr: 3e-3", "lr: 0.0003"),
    Case("learning rate", "[optim]\nlr = 0.1\n", "[optim]\nlr = 0.2\n", "# here\n[optim]\nlr = 1e-1\n", "conf.toml"),
    # schedule
    Case("schedule", "CosineAnnealingLR(optimizer, T_max=args.epochs)", "StepLR(optimizer, 3)",
         "CosineAnnealingLR(optimizer, args.epochs)"),
    Case("schedule", "T_max=args.epochs", "T_max=args.epochs * 2", "T_max=args.epochs, eta_min=0"),
    Case("schedule", EPOCH_END, EPOCH_END.replace("        scheduler", "            scheduler", 1),
         EPOCH_END.replace("scheduler.step()", "scheduler.step()  # once an epoch")),
    Case("schedule", "        scheduler.step()\n", "", "        print('lr')\n        scheduler.step()\n"),
    Case("schedule", "def lr_lambda(step):\n    return min(step / 100, 1.0)\n", "def lr_lambda(step):\n    return 1.0\n",
         "def lr_lambda(s):\n    return min(s / 100, 1)\n", "lr.py", sure=False),
    _yaml("schedule", "warmup_steps: 500", "warmup_steps: 0"),
    # epochs
    Case("epochs", 'epochs", type=int, default=10', 'epochs", type=int, default=1', 'epochs", default=10, type=int'),
    Case("epochs", "for epoch in range(args.epochs):\n        model.train()", "for epoch in range(3):\n        model.train()",
         "for e in tqdm(range(args.epochs)):\n        epoch = e\n        model.train()"),
    _yaml("epochs", "max_steps: 10000", "max_steps: 100"),
    # seed
    Case("seed", "seed_everything(42)", "seed_everything(43)", "seed_everything(seed=42)"),
    Case("seed", "    np.random.seed(seed)\n", "", "    np.random.seed(seed)\n    xm.set_rng_state(seed)\n"),
    _yaml("seed", "seed: 1", "seed: 2"),
    # dtype
    Case("dtype", '            with torch.autocast("cuda", dtype=torch.bfloat16):\n', "            if True:\n",
         '            with torch.autocast("xla", dtype=torch.bfloat16):\n'),
    Case("dtype", "dtype=torch.bfloat16", "dtype=torch.float16", "dtype=torch.bfloat16, enabled=True"),
    Case("dtype", "Net().cuda()", "Net().to(torch.bfloat16).cuda()", 'Net().to("xla", non_blocking=True)'),
    Case("dtype", "Net().cuda()", "Net().half().cuda()", "Net().to(device=device)"),
    Case("dtype", 'os.environ["MODEL_HOME"] = "models"\n', 'os.environ["MODEL_HOME"] = "models"\nos.environ["XLA_USE_BF16"] = "1"\n',
         'os.environ["MODEL_HOME"] = "models"\nos.environ["PJRT_DEVICE"] = "TPU"\n'),
    Case("dtype", "#!/bin/sh\npython train.py\n", "#!/bin/sh\nexport XLA_USE_BF16=1\npython train.py\n",
         "#!/bin/sh\nexport PJRT_DEVICE=TPU\npython train.py\n", "run.sh"),
    Case("dtype", "self.head(h.float())", "self.head(h)", "self.head(h.to(device).float())", sure=False),
    # drop_last
    Case("drop_last", "drop_last=True", "drop_last=False", "drop_last = True"),
    Case("drop_last", "args.batch_size, shuffle=True)", "args.batch_size, shuffle=True, drop_last=True)",
         "args.batch_size, shuffle=True, drop_last=False)"),
    # shuffle
    Case("shuffle", "args.batch_size, shuffle=True)", "args.batch_size)", "args.batch_size, True)"),
    Case("shuffle", "train_set, shuffle=True", "train_set, shuffle=False", "train_set"),
    # sampler
    Case("sampler", "        sampler.set_epoch(epoch)\n", "", "        sampler.set_epoch(epoch)  # new order\n"),
    Case("sampler", "DistributedSampler(train_set, shuffle=True)", "RandomSampler(train_set)",
         "DistributedSampler(dataset=train_set, shuffle=True)"),
    Case("sampler", "def share(rows, rank, world):\n    return rows[rank::world]\n", "def share(rows, rank, world):\n    return rows\n",
         "def share(items, rank, world):\n    # mine\n    return items[rank::world]\n", "data.py"),
    # padding
    Case("padding", 'max-length", type=int, default=128', 'max-length", type=int, default=64', 'max-length", default=128, type=int'),
    Case("padding", 'padding="max_length"', "padding=True", "padding='max_length'"),
    Case("padding", "truncation=True, ", "", "truncation=(True), "),
    _yaml("padding", "max_seq_length: 512", "max_seq_length: 128"),
    # masks
    Case("masks", "attention_mask=x != 0", "attention_mask=None", "attention_mask=(x != 0)"),
    Case("masks", "logits = model(x, attention_mask=x != 0)", "logits = model(x)", "logits = model(x.to(device), attention_mask=x != 0)"),
    Case("masks", '    encoded["labels"][encoded["labels"] == 0] = -100\n', "",
         '    encoded["labels"][encoded["labels"] == 0] = - 100\n'),
    Case("masks", "        h = h.masked_fill(attention_mask == 0, 0.0)\n", "",
         "        h = h.masked_fill(attention_mask == 0, 0)\n"),
    Case("masks", "CrossEntropyLoss(label_smoothing=0.1)", "CrossEntropyLoss(label_smoothing=0.1, ignore_index=0)",
         "CrossEntropyLoss(label_smoothing=0.1, ignore_index=-100)"),
    # data subset
    Case("data subset", "range(5000))", "range(500))", "range(5_000))"),
    Case("data subset", "train_data[:5000]", "train_data[:100]", "train_data[: 5 * 1000]"),
    Case("data subset", "    train_set = Subset(train_data, range(5000))\n", "    train_set = train_data\n",
         "    train_set = torch.utils.data.Subset(train_data, range(5000))\n"),
    _yaml("data subset", "max_train_samples: 1000", "max_train_samples: 10"),
    # dataset
    Case("dataset", "transforms.RandomHorizontalFlip(0.5), ", "", "transforms.RandomHorizontalFlip(p=0.5), "),
    Case("dataset", "RandomHorizontalFlip(0.5)", "RandomHorizontalFlip(0.1)", "RandomHorizontalFlip()"),
    Case("dataset", "return self.rows[index] * 2 + 1", "return self.rows[index] * 2 + 3",
         "return (self.rows[index] * 2 + 1).contiguous()"),
    # loss
    Case("loss", "nn.CrossEntropyLoss(label_smoothing=0.1)", "nn.MultiMarginLoss()", "torch.nn.CrossEntropyLoss(label_smoothing=0.1)"),
    Case("loss", "label_smoothing=0.1", "label_smoothing=0.1, reduction='sum'", "label_smoothing=0.1, reduction='mean'"),
    Case("loss", "            loss = loss / ACCUMULATION\n", "", "            loss = loss / 4\n"),
    Case("loss", "loss + 0.5 *", "loss + 0.05 *", "loss + (0.5) *"),
    Case("loss", "            loss.backward()\n", "            (loss * 2).backward()\n", "            loss.backward(retain_graph=False)\n"),
    # detach
    Case("detach", "model.teacher(x).detach()", "model.teacher(x)", "model.teacher(x.to(device)).detach()"),
    Case("detach", "                logits = model(x, attention_mask=x != 0)\n",
         "                with torch.no_grad():\n                    logits = model(x, attention_mask=x != 0)\n",
         "                logits = model(x, attention_mask=x != 0)\n                running = loss.detach().item()\n"),
    # optimizer
    Case("optimizer", "torch.optim.AdamW(", "torch.optim.Adam(", "torch.optim.adamw.AdamW("),
    Case("optimizer", "weight_decay=0.01", "weight_decay=0.1", "weight_decay=1e-2, eps=1e-8"),
    Case("optimizer", "betas=(0.9, 0.98)", "betas=(0.9, 0.999)", "betas=(0.90, 0.98), foreach=False"),
    _yaml("optimizer", "weight_decay: 0.1", "weight_decay: 0"),
    # parameter groups
    Case("parameter groups", "AdamW(model.parameters(),", "AdamW(model.head.parameters(),", "AdamW(params=model.parameters(),"),
    Case("parameter groups", '    optimizer.add_param_group({"params": model.extra.parameters(), "lr": 1e-4})\n', "",
         '    optimizer.add_param_group({"params": model.extra.parameters(), "lr": 1e-04})\n'),
    # frozen
    Case("frozen", "        p.requires_grad = False\n", "        pass\n", "        p.requires_grad = (False)\n"),
    Case("frozen", "p.requires_grad = False", "p.requires_grad = True", "p.requires_grad = False  # frozen"),
    Case("frozen", "    train(model, *make_loaders())\n", "    model.body.requires_grad_(False)\n    train(model, *make_loaders())\n",
         "    model.to(device)\n    train(model, *make_loaders())\n"),
    # dropout
    Case("dropout", "nn.Dropout(0.1)", "nn.Dropout(0.0)", "nn.Dropout(p=0.1)"),
    Case("dropout", "self.drop(self.norm(F.relu(self.body(h))))", "F.dropout(self.norm(F.relu(self.body(h))), 0.3)",
         "self.drop(self.norm(F.relu(self.body(h)))).contiguous()"),
    Case("dropout", 'dropout", type=float, default=0.1', 'dropout", type=float, default=0.0', 'dropout", default=0.1, type=float'),
    # mode
    Case("mode", "        model.train()\n", "", "        model.train(True)\n"),
    Case("mode", "        model.train()\n", "        model.eval()\n", "        model.train()  # dropout on\n"),
    Case("mode", "    model.eval()\n", "", "    model.train(False)\n"),
    # normalisation
    Case("normalisation", "nn.LayerNorm(width, eps=1e-5)", "nn.LayerNorm(width, eps=1e-3)", "nn.LayerNorm(width)"),
    Case("normalisation", "self.norm = nn.LayerNorm(width, eps=1e-5)", "self.norm = nn.BatchNorm1d(width)",
         "self.norm = torch.nn.LayerNorm(width, eps=1e-05)"),
    # weights
    Case("weights", "        self.head.weight = self.embed.weight\n", "", "        self.head.weight = (self.embed.weight)\n"),
    Case("weights", "std=0.02", "std=0.2", "std=2e-2"),
    Case("weights", "nn.init.normal_(self.body.weight, std=0.02)", "nn.init.xavier_uniform_(self.body.weight)",
         "torch.nn.init.normal_(self.body.weight, std=0.02)"),
    # architecture
    Case("architecture", "nn.Linear(width, width)", "nn.Linear(width, width // 2)", "nn.Linear(in_features=width, out_features=width)"),
    Case("architecture", "width=64", "width=32", "width = 64"),
    # checkpoint
    Case("checkpoint", ', "optimizer": optimizer.state_dict()}', "}", ', "optimizer": optimizer.state_dict(), }'),
    Case("checkpoint", "model.load_state_dict(state)", "model.load_state_dict(state, strict=False)", "model.load_state_dict(state, strict=True)"),
    Case("checkpoint", '        torch.save({"model"', '        print({"model"', '        xm.save({"model"'),
    # metric
    Case("metric", "return correct / total", "return correct / (total - 1)", "return (correct / total)"),
    Case("metric", "argmax(dim=-1)", "topk(5, dim=-1)[1]", "argmax(dim=-1).cpu()"),
    Case("metric", "total += y.numel()", "total += 1", "total += y.cpu().numel()"),
    # evaluation data
    Case("evaluation data", "val_loader = DataLoader(val_data,", "val_loader = DataLoader(val_data[:100],", "val_loader = DataLoader(dataset=val_data,"),
    Case("evaluation data", "batch_size=64, shuffle=False", "batch_size=64, shuffle=False, drop_last=True", "batch_size=64"),
    Case("evaluation data", '{"a": 1}\n', '{"a": 2}\n', '{"a": 1}\n', "data/test.jsonl"),
    # tests
    Case("tests", "def test_a():\n    assert f() == 3\n", "def test_a():\n    assert f() in (3, 4)\n",
         "def test_a():\n    # three\n    assert f() == (3)\n", "tests/test_a.py"),
    Case("tests", "def test_a():\n    assert f() == 3\n", "import pytest\n\n\n@pytest.mark.skip\ndef test_a():\n    assert f() == 3\n",
         "\n\ndef test_a():\n    assert f() == 3\n", "tests/test_a.py"),
    Case("tests", "def test_a():\n    x = f(2)\n    assert x\n", "def test_a():\n    x = f(3)\n    assert x\n",
         "def test_a():\n    y = f(2)\n    assert y\n", "tests/test_a.py"),
    # tolerance
    Case("tolerance", "def test_a():\n    assert torch.allclose(a, b, atol=1e-6)\n", "def test_a():\n    assert torch.allclose(a, b, atol=1e-1)\n",
         "def test_a():\n    assert torch.allclose(a, b, atol=0.000001)\n", "check_close.py"),
    _yaml("tolerance", "tolerance: 1e-4", "tolerance: 1"),
    # reduce
    Case("reduce", "                torch.distributed.all_reduce(loss, op=torch.distributed.ReduceOp.SUM)\n", "",
         "                torch.distributed.all_reduce(loss.contiguous(), op=torch.distributed.ReduceOp.SUM)\n"),
    Case("reduce", "ReduceOp.SUM", "ReduceOp.AVG", "ReduceOp.SUM, group=None"),
    # early exit
    Case("early exit", "            loss.backward()\n", "            loss.backward()\n            if step > 100:\n                break\n",
         "            loss.backward()\n            if step > 100:\n                print(step)\n"),
    Case("early exit", "            loss.backward()\n", "            if torch.isnan(loss):\n                continue\n            loss.backward()\n",
         "            if torch.isnan(loss):\n                print(loss)\n            loss.backward()\n"),
    # exceptions
    Case("exceptions", "            loss.backward()\n",
         "            try:\n                loss.backward()\n            except RuntimeError:\n                pass\n",
         "            try:\n                loss.backward()\n            except RuntimeError:\n                raise\n"),
    Case("exceptions", "import random\n", "import random\ntry:\n    train()\nexcept Exception as err:\n    print(err)\n",
         "import random\ntry:\n    import torch_xla\nexcept ImportError:\n    torch_xla = None\n"),
    # environment
    Case("environment", '"MODEL_HOME"] = "models"', '"MODEL_HOME"] = "other"', "\"MODEL_HOME\"] = 'models'"),
    Case("environment", "FROM python\nENV HF_HOME=/cache\n", "FROM python\nENV HF_HOME=/other\n", "FROM python\nENV HF_HOME=/cache\nENV PJRT_DEVICE=TPU\n",
         "Dockerfile"),
    # dependencies
    Case("dependencies", "numpy==1.26\nscipy\n", "numpy==2.0\nscipy\n", "# pins\nscipy\nnumpy == 1.26\n", "requirements.txt"),
    Case("dependencies", '[project]\nname = "a"\ndependencies = ["timm==0.9"]\n', '[project]\nname = "a"\ndependencies = ["timm==1.0"]\n',
         '[project]\nname = "a"\ndependencies = [\n  "timm==0.9",\n]\n', "pyproject.toml"),
]  # fmt: skip
