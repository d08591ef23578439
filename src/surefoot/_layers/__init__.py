"""Networks of layers that are convex combinations of safe steps, trained one convex problem after the other.

``sectors`` says where a coordinate is, ``network`` what the layers do, ``schedules`` what training starts from, ``problem`` what
one layer minimises, by ``simplices``, ``training`` does so for all, ``run`` holds and stores the outcome, with ``bounds`` of what
rounding can have done; ``command`` and ``report`` are parts of the program.
"""
