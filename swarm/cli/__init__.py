"""The command line: one file per group of commands, composition and exit codes. Nothing imports it."""
