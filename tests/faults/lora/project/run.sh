#!/bin/sh
# Two jobs, as on a cluster with a time limit: the second goes on where the first has saved.
set -e
rm -rf out
python finetune.py --epochs 2
python finetune.py --epochs 7 --resume out/adapter-2.pt
