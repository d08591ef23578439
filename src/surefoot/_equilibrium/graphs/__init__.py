"""Layers in graphs of ``torch.compile`` and ``torch.export``."""
