"""Problem: the paper's linear-rate theorem on a network with n = 2 inputs and m = 1 output.

Finding: the first step of size 1e-4 is allowed by the printed theorem and does not contract the gap as it claims; the
theorem with the corrected α1 claims less, and is right (docs/errata.md, E.3).
"""

import surefoot as sf
from surefoot_check.two_layer.corrected import barred

ETA = 1e-4

# Problem: X = I, W* = [1; 0.001]
loss = sf.SquaredLoss([[1.0, 0.0], [0.0, 1.0]], [[1.0], [0.001]])
net = sf.nn.TwoLayerLinear([[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0]])
printed = sf.certify(net, loss, theorem="two-layer/as-printed")
corrected = sf.certify(net, loss, theorem="two-layer/corrected")
print(printed)
print(corrected)

# Method: one step of gradient descent
run = sf.descend(net, loss, steps=ETA, max_iterations=1, certificate=corrected)
measured = run.gaps[1] / run.gaps[0]

# Claim and reality
claims = {}
for cert in (printed, corrected):
    assert cert.quantities["initial_step"] > ETA  # the theorem allows the step
    claims[cert.theorem] = 1.0 - barred(cert.quantities, ETA)["rate_loss"]
    verdict = "kept" if measured <= claims[cert.theorem] else "VIOLATED"
    print(f"{cert.theorem}: L1/L0 <= {claims[cert.theorem]:.6f} claimed, {measured:.6f} measured: {verdict}")
assert claims["two-layer/as-printed"] < measured <= claims["two-layer/corrected"]
