#!/usr/bin/env bash
python -m textcls.data --out data/
