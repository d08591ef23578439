"""Families of small arrays, random and adversarial, on which certificates are compared with ``independent``; see ``enclosed``."""
