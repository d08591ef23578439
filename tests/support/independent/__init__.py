"""A second implementation of the base quantities of every theorem, from their definitions, in mpmath with 100 digits.

Certifier and checker share their enclosures; nothing here imports either (a test reads the imports). One module a system, with

- ``quantities(kind, problem, weights, published) -> dict[str, Reference]``: every base quantity that these arrays have.
  ``published``: the certificate's numbers, for what is defined through a choice such as the radius of a ball;
- ``gap(kind, problem, weights) -> mpf``: loss - optimal value, or what takes its place.

``problem`` and ``weights`` are the arrays of a run directory.
"""
