"""Figures and tables of papers, reproduced."""
