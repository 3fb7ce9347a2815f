"""The command line: one short function per command, each importing what it needs when it runs."""
