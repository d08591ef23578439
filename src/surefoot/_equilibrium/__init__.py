"""A layer whose output is the fixed point of any map: solvers, implicit derivatives and the transforms of torch.

What users meet is here; ``solver`` finds a fixed point of a tensor, ``cell`` makes a user's map one of explicit tensors,
``derivatives`` differentiates the fixed point, ``graphs`` is for ``torch.compile`` and ``torch.export``, and ``lipschitz``
proves constants.
"""
