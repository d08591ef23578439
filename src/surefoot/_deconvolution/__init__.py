"""Non-blind deconvolution: blur operators, wavelets, Wiener filters and the linearised ADMM with its certificate."""
