"""How many iterations a solver needs on most problems of a distribution: certificates from counts on held-out problems.

``targets`` says when a problem is solved, ``solvers`` how a solver is followed, ``counting`` counts, ``bounds`` computes what
follows from counts, ``certificate`` holds and stores it, ``table`` and ``plot`` show it, and ``shift`` tests whether new problems
are like the held-out ones; ``command`` and ``report`` are parts of the program.
"""
