"""A safeguarded solver of logistic regression: Newton and quasi-Newton proposals, accepted where their decrease is proved."""
