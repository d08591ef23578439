"""Differentiable linear algebra: what ``surefoot.linalg`` re-exports and what the learned solvers share.

One file an operator, named as it is; what it is made of stands beside it or below:

* every operator: ``arguments`` (checks, dtypes, scales), ``operator`` (the pattern that all transforms of torch accept), ``info``
  (the record of the ``*_ex`` forms), ``norms`` (rigorous bounds);
* ``pinv``, ``inverse``: ``pinv_function`` (kernel and derivative), ``pinv_routes`` (the methods), ``pinv_iteration``,
  ``chebyshev``, ``matrix_polynomial``;
* ``solve``, ``lstsq``: ``linear_systems``, ``lstsq_function``, ``lstsq_routes``;
* ``svd``, ``eigh``, ``polar``: ``spectral`` (the factors), ``svd_derivative``, ``tied_pairs`` and ``tie_errors`` (what ties leave
  determined);
* ``matrix_function``, ``singular_value_function``: ``spectral_operator`` (the derivatives), ``divided_differences`` (the
  functions), ``function_bounds``;
* ``orthogonalize``: ``odd_polynomials``.
"""
