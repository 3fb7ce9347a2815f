"""The demo: a small project written for a GPU, and a scripted agent that migrates it."""
