"""Reading what programs print: training progress of any project, and XLA's own signals.

Pure text in, small frozen records out. Nothing here knows of sessions or runs. Every line may be
hostile: it is cut before a pattern sees it, and no pattern can take long on it.
"""
