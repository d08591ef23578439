"""Problem: classify the bundled digits with z = tanh(W z + U x + b), a network of infinite depth.

Method: EquilibriumLayer solves for z, and differentiates it implicitly: one layer's memory, however many iterations it took.
Guarantee: contractive keeps the cell a contraction by 0.9, proved from its operations and weights, so that the distance of
every computed z from the exact equilibrium is bounded, and that of the backward solution too. A solve that does not converge
raises.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from surefoot.nn import EquilibriumLayer, contractive

torch.manual_seed(0)

# Problem
digits = load_digits()
X, y = torch.tensor(digits.data).double() / 16.0, torch.tensor(digits.target)
train, test = slice(0, 600), slice(600, None)


class Cell(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.W = nn.Linear(width, width, bias=False, dtype=torch.float64)
        self.U = nn.Linear(inputs, width, dtype=torch.float64)

    def forward(self, z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.W(z) + self.U(x))


# Method
layer = EquilibriumLayer(contractive(Cell(64, 30), 0.9), state_shape=30, tolerance=1e-6, backward_tolerance=1e-6)
net = nn.Sequential(layer, nn.Linear(30, 10, dtype=torch.float64))
optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
for epoch in range(20):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(X[train]), y[train])
    loss.backward()
    optimizer.step()
    if epoch % 6 == 0:
        print(f"epoch {epoch:2d}  loss {float(loss.detach()):.3f}  forward: {layer.info.text}")

# Metric
z, info = layer.solve(X[test])
accuracy = float((net[1](z).argmax(1) == y[test]).double().mean())
print(f"test accuracy {accuracy:.1%}")
print(f"forward:  {info.text}")
print(f"backward: {layer.backward_info.text}")
assert info.converged and layer.backward_info.converged
