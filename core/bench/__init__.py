"""Measurements that are commands of the product: what the probe costs a run."""
