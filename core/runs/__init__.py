"""Runs: starting a project's own command, its output, its resources, its probe."""
