"""The kinds of loud failures, in the order in which their patterns are tried."""

from __future__ import annotations

from core.detectors.base import detector
from core.detectors.loud import KINDS, ErrorDetector


@detector
class VmemExhausted(ErrorDetector):
    """A kernel asks for more of a core's fast memory than there is."""

    NAME, CATEGORY = "vmem_oom", "C6"
    SOURCE = "public case vmem_oom (pytorch/xla#6611): RESOURCE_EXHAUSTED in memory space vmem"
    PATTERN = r"memory space [vsc]mem\b|scoped vmem limit|\b[vs]mem (?:limit|capacity|OOM)"
    TITLE = "out of memory: a kernel exceeds the core's vector memory (VMEM)"
    NEXT = (
        "Take smaller kernel blocks, or raise xla_tpu_scoped_vmem_limit_kib in LIBTPU_INIT_ARGS; "
        "a smaller batch does not help."
    )


@detector
class HostExhausted(ErrorDetector):
    """The host's memory, or its shared memory, did not suffice."""

    NAME, CATEGORY = "host_oom", "C6"
    SOURCE = "messages of Python, torch's CPU allocator, its DataLoader and the C++ library"
    PATTERN = (
        r"^(?:\w+\.)*_?(?:Array)?MemoryError|std::bad_alloc|can't allocate memory|Cannot allocate memory"
        r"|DataLoader worker .{0,40}(?:killed by signal|exited unexpectedly)|insufficient shared memory"
        r"|[Uu]nable to allocate [\d.]+ .?i?B|terminated with signal SIGKILL|DefaultCPUAllocator"
        r"|No space left on device.{0,20}/dev/shm|unable to (?:mmap|open shared memory)|exitcode\s*:\s*-9"
    )
    TITLE = "out of memory on the host"
    NEXT = (
        "Fewer DataLoader workers and processes, a smaller prefetch, a larger /dev/shm; look "
        "whether memory grew before the end."
    )


@detector
class HbmExhausted(ErrorDetector):
    """The device's memory did not suffice."""

    NAME, CATEGORY = "hbm_oom", "C6"
    SOURCE = "public cases hbm_oom (pytorch/xla#1571, #3532): out of memory in memory space hbm"
    PATTERN = (
        r"memory space hbm|[Hh]bm capacity|out of memory in hbm|\bHBM\b.{0,80}(?:exceed|out of|exhaust|limit|OOM)"
        r"|(?:exceed|out of|exhaust|OOM).{0,60}\bHBM\b|NRT_RESOURCE|NCC_EOOM|[Pp]rogram hbm requirement|[Ll]argest program allocations in|XLA:TPU .{0,40}[Rr]an out of memory"
    )
    TITLE = "out of memory on the device (HBM)"
    NEXT = (
        "Compare the bytes asked for with the device's memory; then a smaller batch with "
        "accumulation, sharded parameters, bf16 where the operator agrees, or rematerialisation."
    )


@detector
class OutOfMemory(ErrorDetector):
    """Memory did not suffice, and the words do not say which."""

    NAME, CATEGORY = "out_of_memory", "C6"
    SOURCE = "public cases hbm_oom and vmem_oom: RESOURCE_EXHAUSTED; torch's OutOfMemoryError"
    PATTERN = (
        r"RESOURCE_EXHAUSTED(?!: (?:Received message|Quota|.{0,20}grpc))|Resource exhausted:"
        r"|[Rr]an out of memory|[Oo]ut of (?:\w+ )?memory|OutOfMemory|Attempting to (?:allocate|reserve) [\d.]+"
        r"|[Ff]ailed to allocate (?:request|[\d.]+)|Allocation .{0,40}exceeds"
    )
    TITLE = "out of memory"
    NEXT = HbmExhausted.NEXT


@detector
class ChipHeld(ErrorDetector):
    """Another process holds the chips."""

    NAME, CATEGORY = "chip_held", "C2"
    SOURCE = "libtpu's messages (jax-ml/jax#10192): one process at a time may use a chip"
    PATTERN = (
        r"TPU is already in use|libtpu\.so (?:is )?already in use|libtpu_lockfile|multi-process lockfile"
        r"|(?:accel|vfio)\S* .{0,60}(?:Device or resource busy|already in use)|Device or resource busy"
        r"|NRT_.{0,20}(?:busy|in use)|NeuronCore\S* .{0,40}in use|[Tt]he device is already (?:acquired|in use)"
    )
    TITLE = "another process holds the chips"
    NEXT = (
        "End the process that holds the chips (the message names it, else `sudo lsof -w "
        "/dev/accel0` or /dev/vfio/*), remove a stale /tmp/libtpu_lockfile, then run again."
    )


@detector
class ImportFailed(ErrorDetector):
    """A library is missing, or its binary does not fit."""

    NAME, CATEGORY = "import_error", "C1"
    SOURCE = (
        "public case import_error (pytorch/xla#8813) and measured on torch_xla 2.9.0: ABI mismatch"
    )
    PATTERN = (
        r"ImportError|ModuleNotFoundError|No module named|undefined symbol|symbol lookup error"
        r"|cannot open shared object file|GLIBC(?:XX)?_[\d.]+|PackageNotFoundError|DistributionNotFound"
        r"|VersionConflict|libtpu.*(?:not found|version)|PJRT API version|[Ff]ailed to import"
        r"|AttributeError: (?:partially initialized )?module '(?!torch\._C' has no attribute '_cuda)|numpy\.\w+ size changed"
        r"|compiled using NumPy 1|Descriptors cannot (?:not )?be created|[Pp]rotobuf.{0,60}version"
        r"|CUDA_HOME|nvcc|CUDA Setup failed|compiled without GPU support|requires? (?:the )?\S{1,40} (?:library|package) but"
        r"|has requirement .{1,80}, but|requires .{1,80}, but you|is required(?: for a normal functioning)? but (?:found|not)"
        r"|but (?:it is|is|was) not (?:installed|found)|(?:not|isn't) installed|[Pp]lease (?:pip )?install|`?pip install "
        r"|Could not find a version|No matching distribution|ResolutionImpossible|subprocess-exited-with-error"
        r"|Error building extension|Ninja is required|command not found|can't open file"
        r"|\bbitsandbytes\b|cget_managed_ptr|cadam\w*_|str2optimizer|cquantize_\w+|flash_attn|FlashAttention\S* (?:only|has been)"
        r"|active drivers \(|[Tt]riton .{0,40}(?:not|requires)|\bapex\b.{0,40}(?:not|install)|_cuda' is not defined"
        r"|Python (?:version )?>=? ?\d\.\d+ is required|requires (?:a different )?Python|supported wheel|no kernel image is available"
        r"|Loaded runtime \w+ library\b|but source was compiled with|cannot enable executable stack|(?:build|wheel|version) requires \S{1,40}==|\bbuilt (?:for|with|against) (?:torch|libtpu|jax)\S{0,12} \S{1,40}(?:,| but| while)"
        r"|operator \S{1,60} does not exist|not linked with support for|incompatible (?:library|torch|version)|version mismatch|Unsupported (?:Python|torch) version|illegal instruction"
    )
    TITLE = "a library is missing or does not fit"
    NEXT = (
        "Pin torch and torch_xla to each other (2.9.1 with 2.9.0) and install what is named; "
        "libraries that need CUDA have no TPU build and have to be replaced."
    )


@detector
class RuntimeMissing(ErrorDetector):
    """The TPU runtime could not be started."""

    NAME, CATEGORY = "tpu_runtime_missing", "C1"
    SOURCE = "messages of torch_xla, JAX and libtpu where no TPU can be initialised"
    PATTERN = (
        r"Unable to initialize backend|TPU metadata|metadata server|DefaultCredentialsError|TPU (?:platform |backend )?initialization failed|No TPU (?:devices|found|detected|platform)"
        r"|Missing XLA configuration|Failed to (?:get|find) .{0,40}(?:TPU|topology|metadata)|TPU_\w+ .{0,30}(?:not set|missing|invalid)"
        r"|slice_builder_worker_addresses|XRT_TPU_CONFIG|Unknown backend:? '?tpu|(?:[Cc]ould not|[Ff]ailed to|[Uu]nable to|[Cc]an't|[Cc]annot) (?:find|open|load|locate) .{0,30}libtpu"
        r"|TPU.{0,30} (?:(?:was|were|is|are) )?not (?:found|available)|[Nn]o (?:accelerator|XLA devices?|neuron devices?)\b.{0,30}(?:found|available|detected)"
        r"|PJRT_DEVICE|PjRt ?plugin.{0,30}(?:not|fail)|/dev/(?:accel|neuron)\d* .{0,20}(?:No such|not)|NRT_INIT|nrt_init"
        r"|Backend 'tpu' (?:failed|is not)|Invalid (?:accelerator|TPU) type|not implemented for XRT|[Uu]nable to create \w+ client|NOT_FOUND: libtpu|[Ff]ailed to infer device type|Session \w+ is not found|Requested backend \S+ .{0,20}failed to initialize|[Ff]ailed to connect to (?:all addresses|remote|TPU)"
        r"|KeyError: '(?:COLAB_TPU_ADDR|(?:CLOUD_)?TPU_\w+|XRT_\w+|PJRT_\w+|NEURON_\w+)'|(?:Expected|expected) \d+ worker addresses|[Nn]euron (?:driver|runtime)\b.{0,40}(?:not|can't|cannot|version|old)|maintenance event"
    )
    TITLE = "the TPU runtime can't be started"
    NEXT = (
        "Check PJRT_DEVICE=TPU, the libtpu that belongs to this torch_xla or jax, the TPU_* "
        "variables, and that the machine has the chips (tpu-info)."
    )


@detector
class RestoreFailed(ErrorDetector):
    """A checkpoint could not be written or read back."""

    NAME, CATEGORY = "restore_error", "C3"
    SOURCE = "public case restore_error (huggingface/transformers#4963)"
    FRAMES = (
        r"torch[/\\.]serialization|torch\.(?:load|save)\(|_rebuild_\w*tensor|\b_?(?:load|restore|save)_(?:checkpoint|state_dict|pretrained|optimizer\w*)\b"
        r"|(?:[Ss]aving|[Ll]oading) (?:the )?(?:model )?checkpoint\b|xm\.save\(|xser\.(?:load|save)\(|distributed[/\\.](?:_shard[/\\.])?checkpoint|distributed_checkpoint|safetensors"
    )
    OVER = ("cuda_assumed", "operator_missing", "dtype_error", "lazy_runtime_error", "library_error", "error")  # fmt: skip
    PATTERN = (
        r"don't know how to restore data location|Attempting to deserialize object on (?!a CUDA)|Cannot copy out of meta tensor|[Ee]rror\(s\) in loading state_dict|UnpicklingError"
        r"|[Ww]eights[ _]only load failed|PytorchStreamReader|SafetensorError|deserializing header|InvalidHeader"
        r"|Missing key\(s\) in state_dict|[Uu]nexpected key\(s\) in state_dict|size mismatch for \S+:"
        r"|Missing keys? in .{0,40}(?:state_dict|checkpoint)|FileNotFoundError: .{0,120}(?:checkpoint-\d|\.ckpt|\.safetensors|rng_state|pytorch_model|optimizer\.(?:pt|bin)|\.distcp)"
        r"|loaded state dict (?:has|contains)|invalid (?:python )?storage|doesn't have storage|access (?:the )?storage|XLATensorImpl|[Tt]ensors? share memory"
        r"|Ran out of input|invalid load key|persistent[_ ]id|cannot pickle|[Cc]an't pickle|inline_container\.cc"
        r"|[Cc]heckpoint .{0,60}(?:corrupt|not found|incomplete|truncat|invalid|mismatch)|unexpected pos \d+"
        r"|(?:Failed|Unable) to (?:load|restore|save|read|write) .{0,40}(?:checkpoint|state|weights)|(?:Missing|no) shard"
        r"|Could not run 'aten::(?:empty|_?to\b|_to_copy|copy|_copy_from|set_)\S*' with arguments from the 'XLA"
        r"|KeyError: .{0,80}(?:\.weight|\.bias|_state|state_dict|checkpoint)|CheckpointException|tree structures? .{0,30}(?:not match|mismatch)|rendezvous.{0,30}(?:save|checkpoint)"
    )
    TITLE = "a checkpoint can't be written or restored"
    NEXT = "Save tensors after moving them to the CPU, or load with map_location='cpu'."


@detector
class CudaAssumed(ErrorDetector):
    """The code asked for CUDA where there is none, or mixed devices."""

    NAME, CATEGORY = "cuda_assumed", "C2"
    SOURCE = "torch's own messages where CUDA is not compiled in or no driver is found"
    PATTERN = (
        r"Torch not compiled with CUDA|torch\._C' has no attribute '_cuda|[Ee]xpected (?:object of )?device (?:type )?\S{1,12} but got|bad device: found|incompatible tensor type|\bis on (?:CPU|cpu|xla\S*),? but expected|Unsupported nprocs|before calling xmp\.spawn"
        r"|NVIDIA driver|[Nn]o (?:CUDA )?GPUs? (?:are|is|found|available|detected)"
        r"|CUDA (?:driver|error|unknown error|is not available|is required|must be available|device|version|initialization|not available|support)"
        r"|libcuda|NCCL|nccl|nvidia-smi|NVML|nvmlInit|cudnn|cuDNN|cublas|CUBLAS"
        r"|Invalid device string|Invalid device.*cuda|torch\.cuda|device type.{0,20}cuda|device_type '?(?:cuda|xla|tpu)"
        r"|[Uu]nsupported (?:autocast )?device|only (?:be )?(?:used|supported|available|works?|runs?) (?:on|with|for) (?:\w+ )?(?:CUDA|GPU|cuda|NVIDIA)"
        r"|CUDA (?:devices|tensors?)|on (?:a )?CUDA|needs? (?:a )?(?:GPU|CUDA)|requires? (?:a |an )?(?:GPU|CUDA|NVIDIA)|GPU (?:is|was) (?:not|required)"
        r"|Attempting to deserialize object on a CUDA device|cuda\.is_available\(\)|is_cuda|Expected a '?(?:cuda|xla)\S* "
        r"|not on the expected device|accelerator device when none|unscale FP16 gradients|[Ee]xpected all tensors to be on the same device|Input tensor is not an XLA tensor"
        r"|[Tt]ensor.{0,40}not.{0,10}XLA tensor|Check failed: xtensor|[Ii]nput type .{0,60} and weight type|different devices?\b|same device|can't convert \S+ device type tensor"
        r"|(?:is|are) on (?:the )?(?:cpu|xla|cuda)\S* .{0,40}(?:but|and) .{0,60}(?:is|are) on|cannot pin |pin_memory"
        r"|number of devices \(\d+\) is different|No inf checks were recorded|forked subprocess|No backend type associated with device"
        r"|Unsupported device|Invalid device id|device_ids|device index|invalid device ordinal|setup doesn't support bf16|BF16.{0,30}(?:GPU|CUDA)"
        r"|XLA (?:device|tensor)s? .{0,40}(?:not supported|expected)|Unhandled FakeTensor Device"
    )
    TITLE = "the code assumes CUDA"
    NEXT = (
        "Replace .cuda(), torch.cuda.* and device strings at the place named by the device the "
        "run was asked for, and move model and batch to the same one."
    )


@detector
class NotANumber(ErrorDetector):
    """The program itself noticed a NaN and gave up."""

    NAME, CATEGORY = "nan_error", "C5"
    SOURCE = "messages of torch's anomaly mode, scikit-learn, fairseq and of training loops"
    PATTERN = (
        r"\b[Nn][Aa][Nn]s?\b|\bnon-?finite\b|not finite|Minimum loss scale reached|[Ii]nfinit(?:y|e) (?:loss|gradient|value)"
        r"|contains (?:either )?`?inf|loss (?:is|became|exploded)|FloatingPointError|[Oo]verflow detected"
    )
    TITLE = "the run stopped at a value that is not a number"
    NEXT = (
        "Compare with the reference in float32 at this step: look for masks filled with a "
        "dtype's minimum, a lost clip, or bf16 where float32 was."
    )


@detector
class ValuesApart(ErrorDetector):
    """The program itself compared values, and they are not what they should be."""

    NAME, CATEGORY = "values_differ", "C5"
    SOURCE = "messages of torch.testing, numpy.testing and unittest; allclose in an assertion"
    PATTERN = (
        r"[Tt]ensor-likes are not (?:close|equal)|not close to|not (?:almost )?equal to tolerance|Mismatched elements"
        r"|allclose\(|not (?:less|greater) than (?:or equal to )?[\d.]+(?:e-?\d+)?|!= .{0,40} within \S+ (?:delta|places)"
        r"|\b(?:outputs?|results?|logits?|loss(?:es)?|gradients?|values?)\b (?:do(?:es)? not|don't|doesn't) (?:match|agree)|\b(?:outputs?|results?|logits?|losses|gradients?) (?:mismatch|differ)"
    )
    TITLE = "values on the device are not those that were expected"
    NEXT = (
        "Compare module by module with the CPU in float32, at the highest matmul precision; the "
        "first that differs names the operator."
    )


@detector
class NotLowered(ErrorDetector):
    """An operator does not exist on the device."""

    NAME, CATEGORY = "operator_missing", "C5"
    SOURCE = "torch's dispatcher and XLA's status messages"
    FRAMES = r"torch\.ops\.|torchvision[/\\.]ops|\bnms\(|roi_\w+\("
    OVER = ("restore_error", "error")
    PATTERN = (
        r"Could not run '[\w:.]+' with arguments|csrc/(?:helpers|convert_ops)\.cpp|Could not run 'aten::|not implemented for|NotImplementedError|UNIMPLEMENTED|Unimplemented:"
        r"|[Oo]p\(s\) not lowered|is not (?:currently )?supported on the XLA|[Uu]nsupported (?:op|operator|HLO|type|lowering)"
        r"|not (?:yet )?(?:implemented|lowered|supported) (?:on|for|in|by) (?:XLA|TPU|the (?:XLA|TPU)|Neuron|device)"
        r"|Mosaic failed|NCC_E(?:UOC|VRF|BVF)|no lowering|rule for .{0,60}not (?:found|implemented)|not contain X64"
        r"|[Ee]rror while lowering|Unsupported XLA type|has no lowering|[Ii]nternal (?:tensorizer|[Cc]ompiler) [Ee]rror|[Ff]ailed compilation with"
        r"|Could not find (?:the )?kernel|aten::\S+.{0,60}(?:not|un)(?: |-)?(?:supported|implemented|available)"
    )
    TITLE = "an operator is missing on the device"
    NEXT = "Express it in operators that XLA lowers, or compute this part on the CPU on purpose."


@detector
class WrongDtype(ErrorDetector):
    """Operands of different number types, or of one the operator does not take."""

    NAME, CATEGORY = "dtype_error", "C5"
    SOURCE = "torch's and XLA's messages on number types that do not fit"
    PATTERN = (
        r"expected (?:scalar type|dtype)|[Ee]xpected .{0,60}but (?:found|got) .{0,20}(?:Half|BFloat16|Float|Double|Long|Int|dtype)"
        r"|must have the same dtype|same dtype|dtype .{0,40}(?:mismatch|not supported|unsupported)|[Ff]ound dtype"
        r"|element types?.{0,40}(?:differ|match|same)|Unsupported dtype|unsupported ScalarType|\bbf(?:loat)?16\b.{0,60}(?:not supported|unsupported)"
        r"|Got unsupported ScalarType|can't be cast|Int vs\. Long|ScalarType::\w+ .{0,20}vs|compare .{0,20}PRED|actual: UNSIGNED"
    )
    TITLE = "number types do not fit each other"
    NEXT = "Give both sides one dtype at the place named; XLA does not cast on its own."


@detector
class ShapesApart(ErrorDetector):
    """Operands whose shapes do not fit the operator."""

    NAME, CATEGORY = "shape_error", "C5"
    SOURCE = "torch's and XLA's messages on shapes that an operator does not take"
    PATTERN = (
        r"Slice dim size|dynamic slice dimension|is invalid for input of size"
        r"|[Rr]educe dimension|INVALID_ARGUMENT: .{0,60}\b(?:dimension|shape|operand|broadcast|concat\w*|reduce|slice)"
    )
    TITLE = "shapes do not fit the operator"
    NEXT = (
        "Print the shapes at the place named on the CPU and on the device: a shape that depends on "
        "values, or a last batch that is smaller, differs."
    )


@detector
class TracingFailed(ErrorDetector):
    """Python asked for a value while the graph was being traced, or used a freed one."""

    NAME, CATEGORY = "tracing_error", "C4"
    SOURCE = "messages of JAX's tracers, torch.compile's guards and donated XLA buffers"
    PATTERN = (
        r"Concretization|TracerBool|TracerArray|TracerInteger|NonConcreteBoolean|UnexpectedTracer|leaked tracer"
        r"|GuardOnDataDependent|Could not guard on|[Dd]ata[- ]dependent|torch\._dynamo\.exc|_dynamo.{0,60}Unsupported"
        r"|RecursionError.{0,80}(?:trac|graph|lower)|(?:HloModule|Hlo|graph|Graph)\w*.{0,40}exceed|exceeded maximum protobuf size|deleted or donated|buffer has been (?:deleted|donated)|[Dd]ynamic (?:shape|dimension)s? .{0,60}(?:not|un)|recompil|Cannot convert symbols"
    )
    TITLE = "the graph can't be traced"
    NEXT = (
        "Take branches and shapes that depend on a tensor's values out of the traced part "
        "(torch.where, fixed shapes), and do not use a tensor after it was donated."
    )


@detector
class LazyError(ErrorDetector):
    """The lazy-tensor runtime failed."""

    NAME, CATEGORY = "lazy_runtime_error", "C4"
    GENERIC = True
    SOURCE = "measured on torch_xla 2.9.0: a CPU backward before the first XLA device breaks a later XLA backward"
    PATTERN = (
        r"device_ready_queues_|torch_xla/csrc|xla::|PjRt|XlaRuntimeError|INTERNAL: |Internal: |INVALID_ARGUMENT: |Invalid argument: "
        r"|FAILED_PRECONDITION: |Failed precondition: |DEADLINE_EXCEEDED|UNAVAILABLE: |ABORTED: |XRT(?:Compile|Execute)|xla_\w*\.cc|pjrt_\w*\.cc"
        r"|Bad StatusOr|\.cc:\d+\] Check fail|LLVM ERROR|NRT_(?:EXEC|TIMEOUT|FAIL)|XLA compilation|HLO|hlo_\w+\.cc|Computation requires more parameters"
    )
    TITLE = "the XLA runtime failed"
    NEXT = (
        "Make the XLA device before any backward on the CPU, keep CPU reference and XLA run in "
        "separate processes, and look at the first error above this one."
    )


@detector
class LibraryError(ErrorDetector):
    """A training library refuses what it was given for the device."""

    NAME, CATEGORY = "library_error", "C3"
    SOURCE = "messages of Lightning, accelerate, transformers and torch's own wrappers"
    FRAMES = (
        r"mesh_reduce|transformers[/\\.]\w*trainer|(?:pytorch_)?lightning[/\\.]|accelerate[/\\.]\w|fairseq[/\\.]|deepspeed[/\\.]"
        r"|peft[/\\.]|\btrl[/\\.]|diffusers[/\\.]|\btimm[/\\.]|optimum[/\\.]|Trainer\.\w+\(|trainer\.(?:train|fit|evaluate|predict)\("
    )
    OVER = ("error",)
    PATTERN = (
        r"MisconfigurationException|accelerate.{0,60}(?:not|un)|(?:FSDP|DDP|DistributedDataParallel|FullyShardedDataParallel|DeepSpeed)"
        r"|[Ff]ailed to meet rendezvous|on_post_move_to_device|tie_weights|ValueError: .{0,60}TPU|Trainer\(.{0,60}\) (?:is|are) not"
        r"|AttributeError: '\w*(?:FullySharded|DistributedDataParallel|DataParallel|DeviceLoader|ParallelLoader|Accelerat|Trainer|Strategy|Plugin|Sampler|DataLoader|Scheduler|Optimizer)\w*' object has no attribute"
        r"|AttributeError: '(?:XLA|Xla)\w*' object has no attribute|Invalid rank \d|rank should be in the interval"
        r"|DistributedSampler|finished reduction in the prior iteration|optimizer .{0,60}(?:different|moved|parameters).{0,60}(?:device|model)|prepare\(|one single model|gather\b.{0,40}(?:shape|hang)"
    )
    TITLE = "a training library does not take this setting on the device"
    NEXT = "Read the library's TPU page for the setting named; change the call, not the model."


@detector
class UnknownError(ErrorDetector):
    """Any other error: its own words are the title."""

    NAME = "error"
    SOURCE = "exit code and last traceback; the operator may give it a category"
    NEXT = "Read the traceback's last frame of the project; give it a category once it is known."


KINDS[:] = [
    VmemExhausted, HbmExhausted, HostExhausted, OutOfMemory, ChipHeld, ImportFailed, RuntimeMissing,
    RestoreFailed, CudaAssumed, NotLowered, WrongDtype, TracingFailed, ShapesApart, LazyError, NotANumber,
    ValuesApart, LibraryError, UnknownError,
]  # fmt: skip
