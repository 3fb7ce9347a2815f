"""More logs of runs that went well: the words of faults, where they mean none."""

from __future__ import annotations

import math

from tests.core.diagnosing.healthy import _falling

_FALL = _falling("step {step} loss {loss:.4f}") + "\n"

MORE: dict[str, str] = {
    "gan": "\n".join(f"iter {i * 100} d_loss 0.6931 g_loss {0.9 + 0.1 * math.sin(i):.4f}" for i in range(12)),
    "an auxiliary loss of zero": "\n".join(f"step {i} loss {2.0 * 0.9**i:.3f} loss_mask 0.000 aux_loss 0.0" for i in range(12)),
    "detectron2": "\n".join(
        f"[05/01 10:0{i // 10}:00 d2.utils.events]:  eta: 1 day, 2:00:00  iter: {i * 20 + 19}  total_loss: {3 * 0.95**i:.3f}  loss_cls: {1.2 * 0.95**i:.3f}  time: 0.3312  data_time: 0.0102  lr: {min(i, 10) * 1e-3:.5f}  max_mem: {2345 + i * 4}M"
        for i in range(30)
    ),
    "mmdetection": "\n".join(
        f"2024-05-01 10:0{i // 10}:00,123 - mmdet - INFO - Epoch [1][{50 * (i + 1)}/7330]\tlr: 2.000e-02, eta: 10:00:00, time: 0.412, data_time: 0.051, memory: {3800 + min(i, 5) * 20}, loss_rpn_cls: {0.6 * 0.97**i:.4f}, acc: {88 + i * 0.2:.4f}, loss: {2.5 * 0.97**i:.4f}"
        for i in range(30)
    ),
    "yolo": "\n".join(
        f"      {i}/299      4.2G   {0.09 - i * 0.002:.5f}   {0.06 - i * 0.001:.5f}    0.02101       120       640: 100%|##########| 115/115 [00:40<00:00,  2.81it/s]\n"
        f"                 Class     Images     Labels          P          R     mAP@.5 mAP@.5:.95:\n                   all       1000       4952      0.{60 + i}       0.{50 + i}      0.{58 + i}      0.{30 + i}"
        for i in range(10)
    ),
    "coco": (
        " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.371\n"
        " Average Precision  (AP) @[ IoU=0.50:0.95 | area= small | maxDets=100 ] = -1.000\n"
        " Average Recall     (AR) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = 0.612"
    ),
    "timm": "\n".join(
        f"Train: 0 [{i * 50:>4d}/1251 ({i * 4:>3d}%)]  Loss:  {6.95 - i * 0.02:.6f} ({6.95 - i * 0.01:.4f})  Time: 1.003s,  255.21/s  (1.100s,  232.70/s)  LR: {(i + 1) * 1e-5:.3e}  Data: 0.011 (0.020)"
        for i in range(25)
    ),
    "keras": "\n".join(
        f"Epoch {i}/5\n938/938 [==============================] - 3s 3ms/step - loss: {0.5 * 0.6**i:.4f} - accuracy: {1 - 0.2 * 0.6**i:.4f} - val_loss: {0.4 * 0.7**i:.4f} - val_accuracy: {1 - 0.15 * 0.7**i:.4f}"
        for i in range(1, 6)
    ),
    "megatron": "\n".join(
        f" iteration {i * 100:>8d}/  500000 | consumed samples: {i * 25600:>12d} | elapsed time per iteration (ms): 1234.5 | learning rate: {i * 1.5e-6:.3E} | global batch size:   256 | lm loss: {10.5 * 0.95**i:.6E} | loss scale: 1.0 | grad norm: {2.0 + math.sin(i):.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |"
        for i in range(1, 20)
    ),
    "deepspeed overflow": "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n" + _FALL,
    "tensorflow's start": (
        "2024-05-01 10:00:00.1: W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory\n"
        "2024-05-01 10:00:00.2: E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:9261] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered\n"
        "All tests passed"
    ),
    "pip": (
        "Collecting torchvision\nInstalling collected packages: torch, torchvision\n"
        "ERROR: pip's dependency resolver does not currently take into account all the packages that are installed.\n"
        "torchaudio 2.0.1 requires torch==2.0.0, but you have torch 2.1.0 which is incompatible.\n"
        "Successfully installed torch-2.1.0 torchvision-0.16.0"
    ),
    "frozen layers": "Freezing the backbone: 10 frozen layers\ntrainable params before freezing: 110M\ntrainable params after freezing: 0.6M\n" + _FALL,
    "pruning": "params before pruning: 25.6M\nparams after pruning: 12.8M\n" + _FALL,
    "early stopping": _FALL + "val_loss did not improve from 0.3121\nval_loss did not improve for 3 epochs, stopping\nTraining finished",
    "waits a little": "Waiting for the lock for 3 seconds\nstill waiting for 2 workers\nWaiting on device barrier for device TPU:0 ...\n" + _FALL,
    "an upload": "model.safetensors:   0%|          | 0.00/440M [00:00<?, ?B/s]\nmodel.safetensors:  45%|####5     | 198M/440M [00:10<00:12, 19.8MB/s]\n" + _FALL,
    "shards of a large model": "saved shard 1 4.9 GB\nsaved shard 2 4.9 GB\nsaved shard 3 0.3 GB\n" + _FALL,
    "sizes of two files": "saved model 440 MB / optimizer 880 MB\n" + _FALL,
    "mae fine-tuning": "_IncompatibleKeys(missing_keys=['head.weight', 'head.bias', 'fc_norm.weight', 'fc_norm.bias'], unexpected_keys=['mask_token', 'decoder_blocks.0.norm1.weight', 'decoder_blocks.1.attn.qkv.weight'])\n" + _FALL,
    "bart": "Some weights of the model checkpoint at facebook/bart-large were not used when initializing BartModel: ['final_logits_bias', 'lm_head.weight']\n" + _FALL,
    "squad": "Loaded dataset squad: 87599 training examples\nevaluating\neval f1 = 88.11 count = 10570\n" + _FALL,
    "workers by number": "\n".join(f"worker: {r} acc=0.9{r} loss=0.{r + 2}" for r in range(1, 6)),
    "ranks with devices": "\n".join(f"rank {r} device xla:{r} epoch 1 acc 0.{80 + r}" for r in range(8)),
    "parameters are in sync": "max param diff across replicas: 0.0\nmax param diff after reload: 0.0\n" + _FALL,
    "moving the optimizer": "moving the optimizer state from cpu to the model's device xla:0\n" + _FALL,
    "teacher stands still": "\n".join(f"step {i} teacher weights hash 8f3a2b11 loss {2.0 * 0.9**i:.3f}" for i in range(8)),
    "settings of noise": "\n".join(f"step {i} noise_std 0.1 randaugment 9 attention mask sum 512 loss {2.0 * 0.9**i:.3f}" for i in range(8)),
    "times on two devices": "cpu step time mean: 3.102 s\nxla step time mean: 0.411 s\ncpu loss: 2.3021\nxla loss: 2.3020\n" + _FALL,
    "max difference in tolerance": "max abs diff cpu vs xla: 1.2e-06\nallclose: True\n" + _FALL,
    "precision 16": "precision: 16\nprecision=32\nrecall 0.91 precision 0.88\n" + _FALL,
    "table with nan": "        loss   acc\ncount  10.0  10.0\nmean    0.5   0.9\nstd     NaN   NaN\n",
    "tests about nan": "tests/test_loss.py::test_loss_nan PASSED\ntests/test_loss.py::test_inf_grad PASSED\n2 passed in 0.11s",
    "reinforcement learning": "\n".join(f"update {i} reward {i * 3.1:.2f} policy_loss {0.01 * math.sin(i):.5f} value_loss {5 * 0.9**i:.3f} entropy {1.38 - i * 0.01:.3f} kl 0.00{i % 9 + 1}" for i in range(20)),
    "a thread that failed and was restarted": "Exception in thread Thread-3:\nTraceback (most recent call last):\n  File \"/w/io.py\", line 3, in run\nConnectionResetError: [Errno 104] Connection reset by peer\nreconnected\n" + _FALL,
    "nccl info": "host:123:123 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.2<0>\nhost:123:123 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so)\n" + _FALL,
    "exit codes of zero": "worker 3 exited with code 0\nAll done, exit status: 0",
    "slow epochs, printed": "\n".join(f"epoch {i} loss {2.0 * 0.8**i:.3f} took 812.4 s" for i in range(6)),
    "compile cache": "Compilation cache hit for jit(train_step)\nXLA compilation cache dir: /tmp/cache\ncompile time: 41.2 s\n" + _FALL,
    "recompiles none": "0 recompilations so far\nno recompilation in the last 1000 steps\nno graph breaks\n" + _FALL,
    "learning rate falls to zero": "\n".join(f"step {i * 100} loss {2.0 * 0.97**i:.4f} lr {1e-3 * (1 - i / 40):.2e}" for i in range(40)),
    "resumed, and goes on": "resumed from checkpoint at step 4000\n" + "\n".join(f"step {4000 + i * 10} loss {1.5 + 0.06 * math.sin(2.3 * i):.4f}" for i in range(20)),
    "validation improves slowly": "\n".join(f"epoch {i} val_loss {0.3121 - 0.0004 * i:.4f} val_acc {0.9 + 0.0003 * i:.4f} train_loss {0.31 - 0.002 * i:.3f}" for i in range(9)),
    "torchrun": "W0501 10:00:00.000000 140 torch/distributed/run.py:779] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n" + _FALL,
    "steady llm pre-training": "\n".join(f"step {90000 + i * 10} | loss {2.871 + 0.02 * math.sin(1.9 * i):.3f} | tok/s 51,200 | gnorm {0.31 + 0.02 * math.sin(i):.2f}" for i in range(40)),
    "kfold": "\n".join(f"fold {k} epoch {e} val_acc {0.7 + 0.02 * e + 0.003 * k:.3f}" for k in range(5) for e in range(5)),
    "a summary says it again": _FALL
    + "────────────────\n      Validate metric           DataLoader 0\n────────────────\n        val_loss            0.4631468653678894\n"
    + "│         val_loss          │    0.4631468653678894     │\n│         val_loss          │    0.4631468653678894     │    0.4631468653678894     │",
    "world size one": "world_size=1 rank=0 device=xla:0\n" + _FALL,
}  # fmt: skip
