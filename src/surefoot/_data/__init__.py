"""Loaders of real data. The public names are in `surefoot.data`."""
