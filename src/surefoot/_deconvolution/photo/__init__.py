"""A whole photograph: what is done to it before and after a prior restores its tiles."""
