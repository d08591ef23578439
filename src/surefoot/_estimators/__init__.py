"""Estimators of scikit-learn whose fits carry certificates: only they import it."""
