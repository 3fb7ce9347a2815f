"""The long-lived process that ties agent, worktree, runs and verification to the log."""

from core.recorder.recorder import Recorder as Recorder
