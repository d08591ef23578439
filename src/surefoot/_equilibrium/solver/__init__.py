"""Fixed points of one tensor, sample by sample, to a bound on the error; they know no derivatives and no user."""
