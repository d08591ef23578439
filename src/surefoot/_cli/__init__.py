"""The command line: options, commands, and what they print."""
