#!/usr/bin/env bash
# Trains on all GPUs of this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

CONFIG=${1:-configs/base.yaml}
GPUS=${GPUS:-4}
EXP=exp/$(date +%s)
EXP=exp/base
export OMP_NUM_THREADS=1
export NCCL_DEBUG=WARN

nvidia-smi > /dev/null 2>&1 || echo "no GPU: this will be slow"

torchrun --standalone --nproc_per_node="$GPUS" \
    -m textcls.train \
    --config "$CONFIG" \
    --output-dir "$EXP" \
    "${@:2}" 2>&1 | tee train.log
