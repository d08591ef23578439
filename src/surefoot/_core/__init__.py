"""What every system shares: losses, certificates, descent, traces, audits, files."""
