"""Logs of runs that went wrong without an error, with category and detector."""

from __future__ import annotations

import math

_FALL = "\n".join(f"step {i * 10} loss {2.3 * 0.97**i:.4f}" for i in range(20)) + "\n"

#: name: (log, category, detector)
SILENT: dict[str, tuple[str, str, str]] = {
    # C1, C2: another device
    "defaulting": ("WARNING:root:Defaulting to PJRT_DEVICE=CPU\n" + _FALL, "C1", "pjrt_cpu_fallback"),
    "real devices": ("torch_xla runtime devices: ['CPU:0']\n" + _FALL, "C1", "pjrt_cpu_fallback"),
    "unset": ("PJRT_DEVICE is not set, using CPU as the default\n" + _FALL, "C1", "pjrt_cpu_fallback"),
    "jax": ("WARNING:absl:No GPU/TPU found, falling back to CPU. (Set TF_CPP_MIN_LOG_LEVEL=0 and rerun for more info.)\n" + _FALL, "C1", "cpu_fallback_warning"),
    "jax, new words": ("WARNING:2024-05-01 10:00:00,1:jax._src.xla_bridge:794: An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed. Falling back to cpu.\n" + _FALL, "C2", "cpu_fallback_warning"),
    "own words": ("warning: CUDA not available, using cpu\n" + _FALL, "C2", "cpu_fallback_warning"),
    "held": ("libtpu.so is already in use by process with pid 771. Not attempting to load libtpu.so in this process.\n" + _FALL, "C2", "cpu_fallback_warning"),
    "held and defaulted": ("The TPU is already in use by another process, pid 771\nWARNING:root:Defaulting to PJRT_DEVICE=CPU\n" + _FALL, "C2", "cpu_fallback_warning"),
    "duty cycle": ("\n".join(f"step {i} loss {2.3 * 0.97**i:.4f} tpu duty cycle: 0.00%" for i in range(1, 9)), "C2", "duty_cycle_zero"),
    "seconds a step": ("  1%|▏         | 12/1000 [14:24<19:46:10, 72.03s/it]", "C2", "duty_cycle_zero"),
    # C2, C3, C4: nothing is learned
    "ten lines": ("\n".join(f"iter {i * 100}: train loss {6.9077 + 0.0002 * (i % 3):.4f}, time 210.11ms" for i in range(10)), "C2", "params_unchanged"),
    "epochs": ("Epoch 1/3 - loss: 0.6932 - acc: 0.5010\nEpoch 2/3 - loss: 0.6931 - acc: 0.4990\nEpoch 3/3 - loss: 0.6932 - acc: 0.5003", "C2", "params_unchanged"),
    "trainer": ("{'loss': 10.3721, 'learning_rate': 5e-05, 'epoch': 0.2}\n{'loss': 10.3719, 'learning_rate': 4e-05, 'epoch': 0.4}\n{'loss': 10.3722, 'learning_rate': 3e-05, 'epoch': 0.6}", "C2", "params_unchanged"),
    "fairseq": ("\n".join(f"2023-03-02 10:0{i}:12 | INFO | train | epoch 00{i} | loss 13.812 | ppl 14380 | wps 31022 | gnorm 1.21 | lr 0.0005" for i in range(1, 7)), "C2", "params_unchanged"),
    "after a restart": ("=> loaded checkpoint 'ckpt/4000.pt' (step 4000)\nstep 4000 loss 1.8731\nstep 4200 loss 1.8729\nstep 4400 loss 1.8731", "C3", "params_unchanged"),
    "resumed with hf": ("***** Running training *****\n  Continuing training from checkpoint, will skip to saved global_step\n  Resuming from step 900\n{'loss': 1.2043, 'epoch': 3.1}\n{'loss': 1.2041, 'epoch': 3.2}\n{'loss': 1.2044, 'epoch': 3.3}", "C3", "params_unchanged"),
    "validation stands still": ("\n".join(f"epoch {i} train_loss {1.9 + 0.05 * math.sin(i):.3f} val_loss 1.8842" for i in range(1, 6)), "C2", "eval_constant"),
    "eval dict": ("\n".join(f"{{'loss': {1.9 - 0.03 * i:.3f}, 'epoch': {i}.0}}\n{{'eval_loss': 2.4471, 'eval_runtime': 3.{i}, 'epoch': {i}.0}}" for i in range(1, 4)), "C2", "eval_constant"),
    "accuracy at chance, no loss": ("\n".join(f"step {i * 500}: eval accuracy = 0.1000" for i in range(1, 4)), "C4", "eval_constant"),
    "at chance": ("\n".join(f"epoch {e} batch {b} loss {math.log(10) + 0.02 * math.sin(7 * b + e):.4f} acc {0.1 + 0.006 * math.sin(3 * b):.3f}" for e in (1, 2) for b in (100, 200, 300)), "C5", "loss_flat"),
    # C5: values
    "nan loss": (_FALL + "step 200 loss nan\nstep 210 loss nan", "C5", "nan"),
    "trainer's nan": ("{'loss': 1.21, 'grad_norm': 1.1, 'epoch': 0.1}\n{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 4e-05, 'epoch': 0.2}", "C5", "nan"),
    "bar": ("Training: 40%|####      | 400/1000 [00:40<01:00, 10.01it/s, loss=nan]", "C5", "nan"),
    "logits": ("logits = tensor([[nan, nan, nan]], device='xla:0', dtype=torch.bfloat16)", "C5", "nan"),
    "said": ("step 12: loss became NaN, skipping update", "C5", "nan"),
    "infinite": ("epoch 1 loss 2.31\nepoch 2 loss inf\nepoch 3 loss inf", "C5", "nan"),
    "all zero": ("\n".join(f"{{'loss': 0.0, 'learning_rate': 4e-05, 'epoch': 0.{i}}}" for i in range(1, 6)), "C5", "loss_zero"),
    "index": ("argmax index: tensor([2147483647], device='xla:0')", "C5", "value_range"),
    "accuracy above one": ("epoch 1 test accuracy: 103.12%\nepoch 2 test accuracy: 104.02%", "C5", "value_range"),
    "perplexity": ("step 100 perplexity 0.41", "C5", "value_range"),
    "bf16 sum": ("\n".join(f"batch {i * 64}: total correct = 256" for i in range(8, 12)), "C5", "metric_saturated"),
    "fp16 sum": ("epoch loss sum: 2048.0\nepoch loss sum: 2048.0\nepoch loss sum: 2048.0", "C5", "metric_saturated"),
    "same noise": ("\n".join(f"iter {i} noise_mean=0.01374 loss={2.3 - 0.01 * i:.3f}" for i in range(1, 6)), "C5", "rng_repeats"),
    "same permutation": ("\n".join(f"step {i}: randperm first 8812" for i in range(1, 5)), "C5", "rng_repeats"),
    # C3: checkpoints
    "wrapped keys": ("<class> missing keys: ['module.encoder.layers.0.self_attn.k_proj.weight', 'module.encoder.layers.0.fc1.weight']", "C3", "checkpoint_equals_base"),
    "fsdp keys": ("UserWarning: unexpected keys in the checkpoint: ['_fsdp_wrapped_module._fpw_module.embed.weight']", "C3", "checkpoint_equals_base"),
    "not strict": ("_IncompatibleKeys(missing_keys=['transformer.h.0.attn.c_attn.weight', 'transformer.h.0.mlp.c_fc.weight'], unexpected_keys=['_orig_mod.transformer.h.0.attn.c_attn.weight'])", "C3", "checkpoint_equals_base"),
    "said to be equal": ("loaded the adapter\nmax abs diff to base model: 0.0", "C3", "checkpoint_equals_base"),
    "nothing matched": ("loaded 0 of 148 tensors from ckpt.pt", "C3", "checkpoint_equals_base"),
    "zero bytes": ("Saved checkpoint\n-rw-r--r-- 1 me me 0 May  1 10:00 pytorch_model.bin", "C3", "checkpoint_size"),
    "shards": ("saved shard rank0.pt 1.10 GB\nsaved shard rank1.pt 1.2 KB\nsaved shard rank2.pt 1.2 KB", "C3", "checkpoint_size"),
    "expected": ("checkpoint size: 412 MB, expected 3.1 GB", "C3", "checkpoint_size"),
    # C3: parameters, replicas, scores
    "more parameters": ("model parameters (cpu): 124,439,808\nmodel parameters (xla:0): 163,037,184", "C3", "param_count_changed"),
    "lightning's warning": ("UserWarning: The model layers do not match after moving to the target device. If your model employs weight sharing on TPU, please tie your weights using the `on_post_move_to_device` model hook.\nLayer count: [Before: 24 After: 25]", "C3", "param_count_changed"),
    "untied": ("lm_head.weight is model.embed_tokens.weight: False\n" + _FALL, "C3", "param_count_changed"),
    "norm by world size": ("world_size=1 step 50 gnorm=2.11\nworld_size=8 step 50 gnorm=5.97", "C3", "grad_norm_scale_mismatch"),
    "hashes": ("\n".join(f"step 100 rank {r} weights hash={h}" for r, h in enumerate(("9f2b11aa", "9f2b11aa", "77c01e5d", "9f2b11aa"))), "C3", "replica_hash_mismatch"),
    "norms of parameters": ("[xla:0] param norm 41.20031\n[xla:1] param norm 41.37718", "C3", "replica_hash_mismatch"),
    "said to differ": ("check: parameters differ across replicas (max 3.1e-2)", "C3", "replica_hash_mismatch"),
    "score by chips": ("BLEU 27.31 (1 chip)\nBLEU 24.02 (8 chips)", "C3", "goal_delta_by_world_size"),
    "score by processes": ("num_processes=1 accuracy=0.842\nnum_processes=8 accuracy=0.779", "C3", "goal_delta_by_world_size"),
    "an eighth": ("Validation: evaluated 6250 of 50000 images\nval acc 0.761", "C3", "eval_sample_count"),
    "n": ("eval accuracy 0.88 (n=109)\nvalidation set: 872 examples", "C3", "eval_sample_count"),
    # C4
    "compiles": ("\n".join(f"pt-xla-profiler: CompileTime too frequent: {10 + n} counts during {n} steps" for n in range(11, 30)), "C4", "recompile"),
    "metrics": ("Metric: CompileTime\n  TotalSamples: 412\n  Accumulator: 20m01s\nMetric: ExecuteTime\n  TotalSamples: 430\n  Accumulator: 01m01s\n", "C4", "recompile"),
    "counters": ("Counter: MarkStep\n  Value: 200\nCounter: UncachedCompile\n  Value: 181\n", "C4", "recompile"),
    "dynamo": ("torch._dynamo hit config.recompile_limit (8)\n   function: 'forward' (model.py:12)\n   last reason: 0/7: tensor 'x' size mismatch at index 1\n" + _FALL, "C4", "recompile"),
    "jax compiles": ("\n".join(f"Finished XLA compilation of jit(train_step) in 8.{i} sec\nstep {i} loss {2.3 - 0.01 * i:.3f}" for i in range(8)), "C4", "recompile"),
    "long compile": ("I0501 compiling train_step ... done, compile took 27 minutes\nstep 1 loss 2.30\nstep 2 loss 2.27", "C4", "compile_too_slow"),
    "alarm": ("2023-04-01 10:02:00.0: E tensorflow/compiler/xla/service/slow_operation_alarm.cc:65]\n********************************\nVery slow compile? If you want to file a bug, run with envvar XLA_FLAGS=--xla_dump_to=/tmp/foo\n********************************", "C4", "compile_too_slow"),
    "reads": ("pt-xla-profiler: TransferFromDeviceTime too frequent: 88 counts during 44 steps", "C4", "transfer_per_step"),
    "reads by metrics": ("Metric: ExecuteTime\n  TotalSamples: 300\n  Accumulator: 30s\nMetric: TransferFromDeviceTime\n  TotalSamples: 900\n  Accumulator: 03m\nCounter: MarkStep\n  Value: 300\n", "C4", "transfer_per_step"),
    "reads of scalars": ("Counter: MarkStep\n  Value: 100\nCounter: aten::_local_scalar_dense\n  Value: 300\n", "C4", "transfer_per_step"),
    "execution": ("pt-xla-profiler: ExecuteTime too slow: longest instance took 01m05s. Please open a GitHub issue with the graph dump for our team to optimize.", "C4", "execution_too_slow"),
    "growing graph": ("\n".join(f"step {i} graph nodes: {2818 * i} loss pending" for i in range(1, 6)), "C4", "graph_growth"),
    "growing memory": ("\n".join(f"step {i * 10} loss {2.3 - 0.01 * i:.2f} rss {1.2 + 0.4 * i:.1f} GB" for i in range(12)), "C4", "rss_slope"),
    "grown and killed": ("\n".join(f"iter {i} mem {900 * 2**i} MB" for i in range(5)) + "\nKilled", "C4", "rss_slope"),
    "slower after loading": ("step time 410 ms (before)\nstep time 1630 ms (after resume)", "C4", "step_time_regression"),
    "slower and slower": ("\n".join(f"step {i * 10} loss {2.3 - 0.01 * i:.2f} step_time {0.2 * 1.15**i:.3f}s" for i in range(18)), "C4", "step_time_regression"),
    "hangs": ("step 0 loss 2.31\nxm.rendezvous('save')\n[hangs here, no output for 40 min]", "C3", "stall"),
    "bar that stands": ("Training:   0%|          | 0/310 [52:10<?, ?it/s]", "C4", "stall"),
    "waits": ("E0501 watchdog: no progress for 1800 s, still waiting at step 17", "C4", "stall"),
    # C5: operators
    "not lowered": ("pt-xla-profiler: Op(s) not lowered: aten::im2col, aten::_ctc_loss,  Please open a GitHub issue with the above op lowering requests.", "C5", "aten_fallback"),
    "counter": ("Counter: MarkStep\n  Value: 20\nCounter: aten::grid_sampler_2d\n  Value: 40\nCounter: xla::add\n  Value: 4000\n", "C5", "aten_fallback"),
    "printed dict": ("executed fallback ops: {'aten::histc': 20, 'aten::median': 20}\n" + _FALL, "C5", "aten_fallback"),
    "torch's warning": ("UserWarning: The operator 'aten::searchsorted.Tensor' is not currently supported on the TPU backend and will fall back to run on the CPU.\n" + _FALL, "C5", "aten_fallback"),
    # C6
    "killed": ("Loading checkpoint shards:  50%|#####     | 4/8 [00:20<00:20,  5.0s/it]\n/usr/bin/run.sh: line 3:  4711 Killed                  python train.py", "C6", "host_killed"),
    "oom killer": (_FALL + "Out of memory: Killed process 4711 (python3) total-vm:98765432kB", "C6", "host_killed"),
}  # fmt: skip
