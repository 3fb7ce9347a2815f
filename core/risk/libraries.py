"""Rules for libraries: those that need CUDA (C1), and those whose ways differ on XLA (C3)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from core.risk.module import Module, constant, dotted, keyword
from core.risk.rules import Found, rule

CUDA_ONLY = {
    "apex": "Use torch.nn and torch.optim in its place (LayerNorm, AdamW), and bf16.",
    "bitsandbytes": "Use the optimizer of torch.optim with the same hyperparameters.",
    "flash_attn": "Use torch's scaled_dot_product_attention, or torch_xla's flash_attention.",
    "xformers": "Use torch's scaled_dot_product_attention.",
    "triton": "Write the kernel in torch operators first; Pallas is the way to kernels on TPU.",
    "deepspeed": "Use plain data parallelism, or FSDP or SPMD of torch_xla.",
    "transformer_engine": "Use torch.nn layers in bf16.",
    "mamba_ssm": "Use the reference implementation in torch operators.",
    "causal_conv1d": "Use torch.nn.Conv1d with padding on the left.",
    "cupy": "Use torch or numpy.",
    "cudf": "Use pandas.",
    "cuml": "Use scikit-learn.",
    "pycuda": "Write it in torch operators.",
    "tensorrt": "Leave it out: inference goes through XLA.",
    "torch_tensorrt": "Leave it out: inference goes through XLA.",
    "auto_gptq": "Use unquantised weights.",
    "unsloth": "Use transformers and peft as they are.",
    "horovod": "Use torch_xla.launch, or SPMD.",
    "spconv": "It has CUDA kernels only.",
    "MinkowskiEngine": "It has CUDA kernels only.",
    "torchsparse": "It has CUDA kernels only.",
    "fairscale": "Use FSDP or SPMD of torch_xla.",
}
"""Packages that need a GPU, and what stands in for them."""

OWN_KERNELS = {
    "torch_scatter": "scatter_add and index_add of torch are lowered to XLA.",
    "torch_sparse": "Sparse tensors are not supported on XLA: use dense ones or scatter_add.",
    "torch_cluster": "Its kernels are for CPU and CUDA.",
    "torch_geometric": "Some of its layers use kernels for CPU and CUDA, and shapes that vary.",
    "dgl": "Its kernels are for CPU and CUDA, and shapes vary.",
    "detectron2": "Its layers use kernels for CPU and CUDA, and shapes that vary.",
    "mmcv": "mmcv.ops are kernels for CPU and CUDA.",
    "pytorch3d": "Its kernels are for CPU and CUDA.",
    "natten": "Its kernels are for CPU and CUDA.",
    "warprnnt_pytorch": "Its kernels are for CPU and CUDA.",
}
"""Packages with compiled operators that XLA does not have."""


@rule(
    "cuda-library",
    "C1",
    "A library that needs a GPU",
    "It does not install, or does not work, on a TPU host.",
    "Replace it, and compare the numbers with the reference afterwards.",
)
def cuda_library(at: Module) -> Iterator[Found]:
    for node, name in at.imports:
        if note := CUDA_ONLY.get(name.split(".")[0]):
            yield Found(node, True, note)
        elif name.startswith("numba.cuda"):
            yield Found(node, True, "Write it in torch operators.")
        elif name.startswith("nvidia.dali"):
            yield Found(node, True, "Use a DataLoader.")


@rule(
    "own-kernels",
    "C5",
    "A library with compiled operators of its own",
    "Operators compiled for CPU and CUDA do not exist on XLA: they fail, or fall back to the CPU.",
    "Look which of its operators the training uses, and replace those.",
)
def own_kernels(at: Module) -> Iterator[Found]:
    for node, name in at.imports:
        if note := OWN_KERNELS.get(name.split(".")[0]):
            yield Found(node, False, note)


@rule(
    "cuda-extension",
    "C1",
    "A CUDA kernel of the project's own",
    "It can't be built or run without a GPU.",
    "Write the same in torch operators, and keep a test that compares the two.",
)
def cuda_extension(at: Module) -> Iterator[Found]:
    place = "torch.utils.cpp_extension."
    for call in at.called(place + "CUDAExtension"):
        yield Found(call)
    for call in at.called(place + "load", place + "load_inline"):
        cuda = keyword(call, "cuda_sources") is not None or any(
            isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value.endswith(".cu")
            for n in ast.walk(call)
        )
        yield Found(call, cuda, "" if cuda else "Whether it has CUDA sources is not written here.")


@rule(
    "cuda-options",
    "C1",
    "An option that asks for CUDA-only code",
    "It makes a library use code that needs a GPU (fused attention, 8-bit optimizers, quantised "
    "weights).",
    "Take the plain variant: sdpa or eager attention, adamw_torch, weights in bf16.",
)
def cuda_options(at: Module) -> Iterator[Found]:
    for call in at.calls:
        for key in call.keywords:
            value = constant(key.value)
            if key.arg in ("load_in_8bit", "load_in_4bit", "use_flash_attention_2"):
                if value is True:
                    yield Found(key.value, at.torch)
            elif key.arg == "attn_implementation" and isinstance(value, str):
                if value.startswith("flash_attention"):
                    yield Found(key.value, at.torch)
            elif key.arg == "optim" and isinstance(value, str):
                if "bnb" in value or "apex" in value or value.startswith("paged_"):
                    yield Found(key.value, at.torch)
            elif key.arg == "fused" and value is True and at.under(call.func, "torch.optim"):
                yield Found(key.value)
    for call in at.called("transformers.BitsAndBytesConfig"):
        yield Found(call)


@rule(
    "fp16-option",
    "C5",
    "Training in fp16 is asked for",
    "A TPU computes in bf16; fp16 with loss scaling is made for GPUs.",
    "Ask for bf16, and hold the metric against the reference: its mantissa is 3 bits shorter.",
)
def fp16_option(at: Module) -> Iterator[Found]:
    trainers = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments")
    for call in at.calls:
        for key in call.keywords:
            value = constant(key.value)
            if key.arg in ("fp16", "fp16_full_eval") and value is True:
                yield Found(key.value, at.is_a(call.func, *trainers))
            elif key.arg == "mixed_precision" and value == "fp16":
                yield Found(key.value, at.is_a(call.func, "accelerate.Accelerator"))
            elif key.arg == "precision" and value in (16, "16", "16-mixed", "16-true"):
                lightning = ("lightning", "pytorch_lightning")
                yield Found(key.value, at.under(call.func, *lightning))


@rule(
    "gpu-trainer",
    "C2",
    "A trainer is told to use GPUs",
    "accelerator='gpu' and gpus=... end with an error where there is none.",
    "Give accelerator='tpu' or 'auto', and the number of chips as devices.",
)
def gpu_trainer(at: Module) -> Iterator[Found]:
    for call in at.calls:
        if isinstance(call.func, ast.Attribute | ast.Name):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id
            if name not in ("Trainer", "Fabric"):
                continue
            sure = at.under(call.func, "lightning", "pytorch_lightning")
            if constant(keyword(call, "accelerator")) in ("gpu", "cuda"):
                yield Found(keyword(call, "accelerator") or call, sure)
            if keyword(call, "gpus") is not None:
                yield Found(keyword(call, "gpus") or call, sure)


@rule(
    "sync-batchnorm",
    "C3",
    "SyncBatchNorm",
    "torch's own works on CUDA only; statistics over several chips need another way.",
    "On one chip use BatchNorm; under SPMD the statistics are global as they stand.",
)
def sync_batchnorm(at: Module) -> Iterator[Found]:
    name = "torch.nn.SyncBatchNorm"
    for call in at.called(name, name + ".convert_sync_batchnorm"):
        yield Found(call)


@rule(
    "distributed",
    "C3",
    "Several processes by torch.distributed",
    "On TPU the processes are started by torch_xla.launch, ranks come from torch_xla.runtime, and "
    "going to more chips changes the global batch size.",
    "Start with one chip; then xm.optimizer_step (it averages gradients), or SPMD. Keep the global "
    "batch size and the learning rate as they are.",
)
def distributed(at: Module) -> Iterator[Found]:
    dist = "torch.distributed."
    names = [dist + n for n in ("init_process_group", "launch", "new_group", "device_mesh")]
    for call in at.called(*names, "torch.multiprocessing.spawn"):
        yield Found(call)
    for call in at.called(
        "torch.nn.parallel.DistributedDataParallel",
        "torch.distributed.fsdp.FullyShardedDataParallel",
    ):
        yield Found(call)


@rule(
    "collective",
    "C3",
    "A collective operation written by hand",
    "Each needs its counterpart of torch_xla, and every replica has to reach it in each step.",
    "Use xm.all_reduce and the like, or SPMD, where the compiler places them.",
)
def collective(at: Module) -> Iterator[Found]:
    names = "all_reduce reduce all_gather all_gather_object all_gather_into_tensor broadcast "
    names += "broadcast_object_list barrier reduce_scatter reduce_scatter_tensor gather scatter "
    names += "monitored_barrier all_to_all all_to_all_single"
    for call in at.called(*("torch.distributed." + n for n in names.split())):
        yield Found(call)


@rule(
    "clip-before-reduce",
    "C3",
    "Gradients are clipped before they are averaged",
    "Each process then clips by the norm of its own gradients, and the average is another one.",
    "Average first (xm.reduce_gradients), clip after it, then step.",
)
def clip_before_reduce(at: Module) -> Iterator[Found]:
    clips = list(at.called(*CLIPS))
    reduces = list(at.called("torch.distributed.all_reduce", "torch_xla.core.xla_model.all_reduce"))
    for clip in clips:
        scope = at.scope(clip)
        after = [r for r in reduces if at.scope(r) is scope and r.lineno > clip.lineno]
        steps = [s for s in at.methods("step") if at.scope(s) is scope and s.lineno > clip.lineno]
        # Only a reduction between the clip and the step can be that of the gradients.
        if any(not steps or r.lineno < steps[0].lineno for r in after):
            yield Found(clip, False)


CLIPS = (
    "torch.nn.utils.clip_grad_norm_",
    "torch.nn.utils.clip_grad_norm",
    "torch.nn.utils.clip_grad.clip_grad_norm_",
    "torch.nn.utils.clip_grad_value_",
)


@rule(
    "clip-many",
    "C3",
    "Gradients are clipped in a program of several processes",
    "On TPU xm.optimizer_step averages the gradients after this line, so the clip sees those of "
    "one replica only. DistributedDataParallel had averaged them before it.",
    "Call xm.reduce_gradients before the clip, and optimizer.step() after it.",
)
def clip_many(at: Module) -> Iterator[Found]:
    if at.imports_any("torch") and "distributed" in at.text.lower():
        for call in at.called(*CLIPS):
            yield Found(call, False)


@rule(
    "tied-weights",
    "C3",
    "Two modules share one parameter",
    "Moving a module to an XLA device unties them: two parameters train apart from then on.",
    "Tie them again after the move, or move with "
    "torch.__future__.set_swap_module_params_on_conversion(True).",
)
def tied_weights(at: Module) -> Iterator[Found]:
    for assign in at.assigns:
        targets = assign.targets if isinstance(assign, ast.Assign) else [assign.target]
        value = assign.value
        for target in targets:
            if not (isinstance(target, ast.Attribute) and isinstance(value, ast.Attribute)):
                continue
            names = ("weight", "bias")
            if target.attr in names and value.attr in names and dotted(target) and dotted(value):
                if dotted(target.value) not in ("self", dotted(value.value)):
                    same_root = dotted(target).split(".")[0] == dotted(value).split(".")[0]
                    yield Found(assign, at.torch and same_root)
    for call in at.calls:
        if constant(keyword(call, "tie_word_embeddings")) is True:
            yield Found(keyword(call, "tie_word_embeddings") or call, False)
    for call in at.methods("tie_weights"):
        yield Found(call, False)


@rule(
    "checkpoint-save",
    "C3",
    "A checkpoint of device tensors",
    "Saved from an XLA device, tensors can be loaded only where torch_xla is, or with "
    "map_location; one file a process is one shard.",
    "Save CPU tensors (xm.save, or state_dict moved to the CPU), from one process.",
)
def checkpoint_save(at: Module) -> Iterator[Found]:
    for call in at.called("torch.save"):
        used = [n for n in ast.walk(call) if isinstance(n, ast.Attribute)]
        owners = [dotted(n.value).lower() for n in used if n.attr == "state_dict"]
        if not any(n.attr == "cpu" for n in used):
            yield Found(call, any("sched" not in o and "scaler" not in o for o in owners))


@rule(
    "checkpoint-load",
    "C3",
    "A checkpoint is loaded without map_location",
    "What was saved on a GPU then asks for CUDA.",
    "Load with map_location='cpu' and move the model afterwards.",
)
def checkpoint_load(at: Module) -> Iterator[Found]:
    for call in at.called("torch.load"):
        if keyword(call, "map_location") is None and len(call.args) < 2:
            if not any(k.arg is None for k in call.keywords):
                yield Found(call)


@rule(
    "torchscript",
    "C3",
    "TorchScript",
    "Scripted or traced modules do not run through XLA's lazy tensors as one graph.",
    "Train the plain module; script it for export only.",
)
def torchscript(at: Module) -> Iterator[Found]:
    for call in at.called("torch.jit.script", "torch.jit.trace", "torch.jit.script_method"):
        yield Found(call)
    for function in at.functions:
        for decorator in function.decorator_list:
            if at.is_a(decorator, "torch.jit.script", "torch.jit.script_method"):
                yield Found(decorator)
