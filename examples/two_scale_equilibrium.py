"""Problem: classify the bundled digits by features at two resolutions that have to agree with each other.

Method: the state of the EquilibriumLayer is a pair of tensors, 8×8 and 4×4 features; convolutions act on each and from each to
the other. Its memory is that of one evaluation, however many the solve takes, and each epoch starts from the last one's states.
Guarantee: the cell is made a contraction with a proved factor, so that the distance of every state from the exact equilibrium is
bounded, over both resolutions. A solve that does not converge raises.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from surefoot.nn import EquilibriumLayer, WarmStart, contractive

torch.manual_seed(0)
CHANNELS, EPOCHS, BATCH = 4, 4, 200

# Problem
pixels, classes = load_digits(return_X_y=True)
X, y = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 8.0 - 1.0, torch.tensor(classes)
train, test = slice(0, 1200), slice(1200, None)


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fine, self.coarse, self.up = (nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(3))
        self.down = nn.Conv2d(CHANNELS, CHANNELS, 3, stride=2, padding=1)

    def forward(self, z: tuple[Tensor, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        fine, coarse = z
        lifted = functional.interpolate(self.up(coarse), scale_factor=2.0)
        return torch.tanh(self.fine(fine) + lifted + x), torch.tanh(self.coarse(coarse) + self.down(fine))


# Method
features, head = nn.Conv2d(1, CHANNELS, 3, padding=1), nn.Linear(CHANNELS * (8 * 8 + 4 * 4), 10)
shapes = ((CHANNELS, 8, 8), (CHANNELS, 4, 4))
layer = EquilibriumLayer(contractive(Cell(), 0.8), state_shape=shapes, tolerance=1e-3, backward_tolerance=1e-3)
net = nn.ModuleList([features, layer, head])
optimizer, warm = torch.optim.Adam(net.parameters(), lr=0.01), WarmStart(1200)


def scores(z: tuple[Tensor, Tensor]) -> Tensor:
    return head(torch.cat([scale.flatten(1) for scale in z], 1))


for epoch in range(EPOCHS):
    for index in torch.randperm(1200).split(BATCH):
        optimizer.zero_grad()
        loss = functional.cross_entropy(scores(layer(features(X[index]), memory=warm[index])), y[index])
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}  loss {float(loss.detach()):.3f}  {layer.info.iterations} evaluations")

# Metric
with torch.no_grad():
    z, info = layer.solve(features(X[test]))
    accuracy = float((scores(z).argmax(1) == y[test]).double().mean())
print(f"test accuracy {accuracy:.1%}")
print(f"forward: {info.text}")
assert info.converged and info.guaranteed
