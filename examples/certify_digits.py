"""Problem: ten-class regression on handwritten digits. Method: gradient descent on a two-layer linear network.

Guarantee: the gap after t iterations is at most cert.bound(t), known before training (theorem two-layer/drift).
"""

import surefoot as sf

# Problem
data = sf.data.load("digits").standardise().one_hot()
train, test = data.train(), data.test()
loss = sf.SquaredLoss(train.X, train.Y)

# Method
net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=1000, std=1000**-0.5, seed=0)

# Guarantee, before training
cert = sf.certify(net, loss)
print(cert)
assert cert.holds

# Training, and what really happened
run = sf.descend(net, loss, certificate=cert, tolerance=1e-10)
audit = run.audit()
print(f"{run.iterations} iterations ({cert.iterations_to(1e-10):,} guaranteed), status {run.status.value}")
print(audit)
assert audit.holds and run.gaps[-1] <= cert.bound(run.iterations)

accuracy = float((net(test.X).argmax(1) == test.labels).double().mean())
print(f"held-out accuracy {accuracy:.3f}")
