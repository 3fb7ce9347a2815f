"""Logs of runs that went well, in many styles: none may open a finding."""

from __future__ import annotations

import math


def _falling(form: str, n: int = 40, start: float = 2.31, floor: float = 0.35, every: int = 10) -> str:  # fmt: skip
    lines = []
    for i in range(n):
        loss = floor + (start - floor) * math.exp(-i / 12) + 0.02 * math.sin(i * 1.7)
        acc = 0.95 - 0.8 * math.exp(-i / 12) + 0.01 * math.sin(i * 2.3)
        norm = 1.2 + 0.4 * math.sin(i)
        lines.append(form.format(step=i * every, i=i, epoch=i // 8 + 1, loss=loss, acc=acc, norm=norm, pct=acc * 100, t=0.21 + 0.01 * math.sin(i)))  # fmt: skip
    return "\n".join(lines)


HEALTHY: dict[str, str] = {
    "plain print": _falling("step {step} loss {loss:.4f}"),
    "equals signs": _falling("[step {step}] loss={loss:.4f} grad_norm={norm:.2f} lr=0.001"),
    "hf trainer dicts": _falling(
        "{{'loss': {loss:.4f}, 'grad_norm': {norm:.6f}, 'learning_rate': 4.5e-05, 'epoch': {i}.25}}"
    ),
    "hf trainer two lines": (
        "{'loss': 1.8823, 'learning_rate': 4.9e-05, 'epoch': 0.5}\n"
        "{'loss': 1.5210, 'learning_rate': 4.8e-05, 'epoch': 1.0}"
    ),
    "hf evaluation": (
        "***** Running Evaluation *****\n  Num examples = 872\n  Batch size = 8\n"
        "{'eval_loss': 0.4123, 'eval_accuracy': 0.8211, 'eval_runtime': 3.1, 'epoch': 1.0}\n"
        "***** Running Evaluation *****\n  Num examples = 872\n  Batch size = 8\n"
        "{'eval_loss': 0.3511, 'eval_accuracy': 0.8532, 'eval_runtime': 3.0, 'epoch': 2.0}\n"
        "{'train_runtime': 301.2, 'train_samples_per_second': 512.2, 'train_loss': 0.4417, 'epoch': 2.0}"
    ),
    "hf fine-tuning with a new head": (
        "Some weights of the model checkpoint at bert-base-cased were not used when initializing "
        "BertForSequenceClassification: ['cls.predictions.bias', 'cls.seq_relationship.weight']\n"
        "- This IS expected if you are initializing BertForSequenceClassification from another task\n"
        "Some weights of BertForSequenceClassification were not initialized from the model checkpoint "
        "at bert-base-cased and are newly initialized: ['classifier.bias', 'classifier.weight']\n"
        "You should probably TRAIN this model on a down-stream task to be able to use it.\n"
        + _falling("{{'loss': {loss:.4f}, 'learning_rate': 2e-05, 'epoch': {i}.5}}", 12)
    ),
    "lightning": (
        "GPU available: False, used: False\nTPU available: True, using: 8 TPU cores\n"
        "  | Name  | Type   | Params\n---------------------------------\n0 | model | ResNet | 11.2 M\n"
        "---------------------------------\n11.2 M    Trainable params\n0         Non-trainable params\n"
        "11.2 M    Total params\n44.7      Total estimated model params size (MB)\n"
        + _falling("Epoch {epoch}: 100%|##########| 98/98 [00:20<00:00,  4.71it/s, v_num=3, train_loss={loss:.3f}, val_acc={acc:.3f}]")
        + "\n`Trainer.fit` stopped: `max_epochs=5` reached."
    ),
    "fairseq": _falling(
        "2023-03-02 10:0{epoch}:12 | INFO | train_inner | epoch 00{epoch}: {step} / 1000 loss={loss:.3f}, "
        "nll_loss={loss:.3f}, ppl=4.51, wps=31022.1, ups=1.2, wpb=25000, bsz=812, num_updates={step}, "
        "lr=0.0005, gnorm={norm:.3f}, clip=0, train_wall=81, gb_free=9.3, wall=99"
    ),
    "fairseq valid": "\n".join(
        f"2023-03-02 10:00:12 | INFO | valid | epoch 00{i} | valid on 'valid' subset | loss {6.2 - i * 0.4:.3f} "
        f"| nll_loss {5.1 - i * 0.4:.3f} | ppl {33 - i * 4:.2f} | wps 80011 | num_updates {i * 500} | best_loss {6.2 - i * 0.4:.3f}"
        for i in range(1, 6)
    ),
    "pytorch xla mnist, eight replicas": "\n".join(
        f"[xla:{r}]({s}) Loss={2.2 * math.exp(-s / 200) + r * 0.011:.5f} Rate={900 + r:.2f} GlobalRate={700 + s:.2f} Time=Mon May  2 10:0{s // 100}:00 2022"
        for s in range(0, 400, 20)
        for r in range(8)
    ),
    "device=xla lines": _falling(
        "| Training Device=xla:0/0 Epoch={epoch} Step={step} Loss={loss:.5f} Rate=1760.91 GlobalRate=257.10 Time=07:29:39"
    ),
    "tqdm with postfix": _falling("Training: 40%|####      | {step}/1000 [00:40<01:00, 5.01it/s, loss={loss:.3f}]"),
    "a bar of epochs": (
        _falling("step {step} loss {loss:.4f}", 30)
        + "\nEpoch: 30%|###       | 3/10 [15:00<35:00, 300.12s/it]"
    ),
    "loading shards and downloading": (
        "Loading checkpoint shards:  50%|#####     | 4/8 [03:20<03:20, 50.11s/it]\n"
        "Downloading: 100%|##########| 4/4 [04:00<00:00, 60.0s/it]\n"
        "Map: 100%|##########| 87000/87000 [00:41<00:00, 2098.11 examples/s]\n"
        + _falling("step {step} loss {loss:.4f}", 12)
    ),
    "jax on a tpu": (
        "I0000 00:00:1714000000.1 1234 pjrt_api.cc:100] GetPjrtApi was found for tpu at libtpu.so\n"
        "INFO:2024-05-01 10:00:00,123:jax._src.xla_bridge:822: Unable to initialize backend 'cuda': module 'jaxlib' has no attribute 'cuda'\n"
        "INFO:2024-05-01 10:00:00,124:jax._src.xla_bridge:822: Unable to initialize backend 'rocm': NOT_FOUND: Could not find registered platform\n"
        "Compiling train_step for with global shapes and types [ShapedArray(float32[8,128])]\n"
        "Finished XLA compilation of jit(train_step) in 41.2 sec\n" + _falling("step: {step}, loss: {loss:.4f}, tokens/sec: 48211.3")
    ),
    "torch_xla metrics of a healthy run": (
        "Metric: CompileTime\n  TotalSamples: 3\n  Accumulator: 41s882ms123.100us\n"
        "  Percentiles: 1%=02s100ms; 50%=18s100ms; 99%=21s001ms\n"
        "Metric: ExecuteTime\n  TotalSamples: 1200\n  Accumulator: 05m10s000ms\n"
        "  Percentiles: 1%=080ms; 50%=251ms; 99%=301ms\n"
        "Metric: TransferFromDeviceTime\n  TotalSamples: 121\n  Accumulator: 01s10ms\n  Percentiles: 1%=001ms; 99%=009ms\n"
        "Metric: TensorsGraphSize\n  TotalSamples: 1203\n  Percentiles: 1%=2.00; 50%=5120.00; 80%=5120.00; 99%=5121.00\n"
        "Counter: CachedCompile\n  Value: 1197\nCounter: MarkStep\n  Value: 1200\nCounter: UncachedCompile\n  Value: 3\n"
        "Counter: aten::_local_scalar_dense\n  Value: 120\nCounter: xla::addmm\n  Value: 24000\n"
    ),
    "two compiles at the start": (
        "Compilation Analysis: ================================================================================\n"
        "Compilation Analysis: Compilation Cause\nCompilation Analysis:   user torch_xla.sync\n"
        "Compilation Analysis: Graph Info:\nCompilation Analysis:   Graph Hash: 3db474e3914336265462df5faf427395\n"
        "Compilation Analysis: --------------------------------------------------------------------------------\n"
        + _falling("step {step} loss {loss:.4f}")
    ),
    "warnings only": (
        "/usr/lib/python3.10/site-packages/torch/utils/data/dataloader.py:557: UserWarning: This DataLoader will "
        "create 8 worker processes in total. Our suggested max number of worker in current system is 4\n"
        "train.py:80: FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated.\n"
        "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. "
        "Disabling parallelism to avoid deadlocks...\n"
        "To disable this warning, you can either:\n\t- Set the environment variable TOKENIZERS_PARALLELISM=(true | false)\n"
        + _falling("step {step} loss {loss:.4f}")
    ),
    "noise at exit": (
        _falling("step {step} loss {loss:.4f}")
        + "\nTraining finished.\nException ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>\n"
        "Traceback (most recent call last):\n  File \"/usr/lib/python3.10/site-packages/torch/utils/data/dataloader.py\", line 1478, in __del__\n"
        "    self._shutdown_workers()\nAssertionError: can only test a child process"
    ),
    "an optional library that is missing": (
        "Traceback (most recent call last):\n  File \"/w/model.py\", line 3, in <module>\n    import apex\n"
        "ModuleNotFoundError: No module named 'apex'\nUsing torch's LayerNorm instead of apex\n"
        + _falling("step {step} loss {loss:.4f}")
    ),
    "retried download": (
        "Error loading dataset: HTTPError: 503 Server Error, retrying in 5 s\n"
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='example.org', port=443): Read timed out.\n"
        "Retry 1 of 5\n" + _falling("step {step} loss {loss:.4f}") + "\ndone"
    ),
    "metric named like an exception": _falling("step {step} loss {loss:.4f}")
    + "\nMeanSquaredError: 0.0231\nMeanAbsoluteError: 0.1140\nTest error: 2.31 %",
    "grad scaler starts with inf": (
        "step 1 loss 2.31 grad_norm inf\nGradient overflow. Skipping step, loss scaler 0 reducing loss scale to 32768.0\n"
        + _falling("step {step} loss {loss:.4f} grad_norm {norm:.3f}")
    ),
    "best loss starts at inf": "best_val_loss = inf\npatience 3, min_delta 0.0\n"
    + _falling("epoch {i} train_loss {loss:.4f} val_loss {loss:.4f} best_val_loss {loss:.4f}"),
    "accuracy reaches 1": "\n".join(
        f"epoch {i} train_loss {0.9 * 0.5**i:.4f} val_acc {min(1.0, 0.7 + 0.1 * i):.4f}" for i in range(1, 9)
    ),
    "small validation set": "\n".join(
        f"epoch {i} train_loss {0.9 * 0.8**i:.4f} val_loss {0.8 * 0.9**i:.4f} val_acc {a}"
        for i, a in enumerate((0.85, 0.905, 0.915, 0.915, 0.92, 0.92), 1)
    ),
    "slow learning in warm-up": "\n".join(f"step {i} loss {10.8251 - i * 0.004:.4f} lr {i * 1e-7:.2e}" for i in range(1, 20)),
    "first steps of a large model": "step 1 loss 10.8249\nstep 2 loss 10.8242\nstep 3 loss 10.8207",
    "converged and low": "\n".join(
        f"step {i * 50} loss {0.0021 + 0.4 * math.exp(-i):.4f}" for i in range(30)
    ),
    "two readings, three per cent apart": "step 0 loss 0.6931\nstep 10 loss 0.6720",
    "steady memory": "\n".join(
        f"step {i} loss {2.0 * 0.98**i:.4f} rss {900 + min(i, 4) * 60:.0f} MB" for i in range(40)
    ),
    "max mem of detr": "\n".join(
        f"Epoch: [0]  [{i * 10}/500]  eta: 0:02:01  lr: 0.0001  loss: {20 * 0.97**i:.4f} (21.1)  time: 0.2411  data: 0.0101  max mem: {3000 + min(i, 5) * 90}"
        for i in range(40)
    ),
    "steps get faster": "\n".join(
        f"step {i} loss {2.0 * 0.98**i:.4f} step_time {30.2 if i < 2 else 0.21:.2f}s" for i in range(40)
    ),
    "evaluation of 1000 of 1000": _falling("step {step} loss {loss:.4f}")
    + "\nevaluated 1000 of 1000 samples\ntest accuracy: 0.9510 (951/1000)",
    "mnist's own line": "Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.300039\nTrain Epoch: 1 [640/60000 (1%)]\tLoss: 1.213470\n"
    "\nTest set: Average loss: 0.0503, Accuracy: 9838/10000 (98%)",
    "peft counts": "trainable params: 4,194,304 || all params: 6,742,609,920 || trainable%: 0.0622\n"
    + _falling("{{'loss': {loss:.4f}, 'learning_rate': 2e-04, 'epoch': {i}.1}}", 12),
    "counts of two networks": "number of parameters of the generator: 3,576,704\nnumber of parameters of the discriminator: 2,765,568\n"
    + _falling("step {step} g_loss {loss:.4f} d_loss {acc:.4f}"),
    "the same count before and after": "params before the move: 86.1M\nparams after the move: 86.1M\n"
    + _falling("step {step} loss {loss:.4f}"),
    "checkpoints are saved and loaded": (
        "Resuming from checkpoint out/checkpoint-500\n<All keys matched successfully>\n"
        "_IncompatibleKeys(missing_keys=[], unexpected_keys=[])\n"
        + "\n".join(f"step {500 + i * 10} loss {1.2 * 0.97**i:.4f}" for i in range(30))
        + "\nSaving model checkpoint to out/checkpoint-800\nmodel.safetensors 8.8G (expected 8.8G)"
    ),
    "shards of one size": "\n".join(f"saved shard rank{r}.pt 1.10 GB" for r in range(8)),
    "one chip and eight agree": "epoch 10: multi core 81.02% | single core 81.38%\n[8 chips] step 10 grad_norm=1.97\n[1 chip] step 10 grad_norm=1.98",
    "replicas agree": "\n".join(f"step 100 replica {r} param checksum 8f3a2b11" for r in range(4)),
    "seeds are constant": _falling("step {step} seed 42 dropout 0.1 mask_ratio 0.15 loss {loss:.4f}"),
    "masks are drawn anew": "\n".join(f"step {i} dropout_mask_sum={38000 + i * 37 % 411}" for i in range(1, 8)),
    "running sum goes on": "\n".join(f"running_loss = tensor({512.0 * i:.0f}., device='xla:1')" for i in range(1, 8)),
    "neuron": (
        "2024-05-01 10:00:00.000123: 1 INFO ||NEURON_CACHE||: Compile cache path: /var/tmp/neuron-compile-cache\n"
        "2024-05-01 10:00:01.000231: 1 INFO ||NEURON_CC_WRAPPER||: Using a cached neff for graph model.hlo_module\n"
        ".\nCompiler status PASS\n" + _falling("step {step} loss {loss:.4f}")
    ),
    "stopped by hand": _falling("step {step} loss {loss:.4f}")
    + "\nTraceback (most recent call last):\n  File \"train.py\", line 88, in main\n    batch = next(it)\nKeyboardInterrupt",
    "exit code 0": _falling("step {step} loss {loss:.4f}") + "\nProcess finished with exit code 0",
    "wandb's summary": _falling("step {step} loss {loss:.4f}")
    + "\nwandb: Run history:\nwandb:   loss ▇▅▃▂▁\nwandb: Run summary:\nwandb:   loss 0.36112\nwandb: Synced 5 W&B file(s)",
    "nan in words of options": "detect_nan=True, nan_to_num=False, logging_nan_inf_filter: True\n"
    + _falling("step {step} loss {loss:.4f}"),
    "step times with evaluation": "\n".join(
        f"step {i * 100} loss {2.0 * 0.95**i:.4f} {4.9 + 0.2 * math.sin(i):.2f} it/s" for i in range(30)
    ),
    "json lines": "\n".join(
        f'{{"step": {i * 10}, "loss": {2.2 * 0.95**i:.5f}, "lr": 0.0003, "tokens_per_s": 51200.0}}' for i in range(30)
    ),
    "torchtitan": _falling(
        "[rank0]:2024-08-01 10:00:00,123 - root - INFO - step: {step:2d}  loss: {loss:7.4f}  memory:  9.22GiB(11.6%)  tps: 3,211  mfu: 31.2%"
    ),
    "no numbers at all": "Loading data\nBuilding the model\nTraining\nDone",
    "pytest": "============ test session starts ============\ncollected 12 items\ntests/test_a.py ............   [100%]\n======= 12 passed in 3.21s =======",
}  # fmt: skip
