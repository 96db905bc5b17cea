"""Which patches of an image a small network relies on: a bright square in one of two corners."""

import matplotlib.pyplot as plt
import numpy as np
import torch

import reliance as rl

torch.manual_seed(0)
label = torch.arange(600) % 2
images = 0.5 * torch.randn(600, 1, 8, 8)
images[label == 1, :, :4, :4] += 1.0
images[:, :, 4:, 4:] += 0.5
net = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(256, 2)
)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(60):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(images[:300]), label[:300]).backward()
    optimizer.step()

mask = np.kron(np.arange(16).reshape(4, 4), np.ones((2, 2), dtype=int))[None]
result = rl.permutation_importance(
    net, images[300:], label[300:], features=mask, loss=torch.nn.CrossEntropyLoss(), rng=0
)
figure, axes = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
axes[0].imshow(images[label == 1].mean(dim=0)[0], cmap="gray")
axes[0].set_title("mean image of class 1")
axes[0].axis("off")
result.plot("image", ax=axes[1], mask=mask[0])
