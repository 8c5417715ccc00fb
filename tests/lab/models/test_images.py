"""Convolutional networks: sizes of the papers, and the residual equation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bayeswell.lab.models.images import CNN, LeNet5, Residual, ResNet18


def count(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def test_lenet5_has_its_number_of_weights() -> None:
    # Convolutions 6 (25 + 1) and 16 (150 + 1), dense layers 400-120-84-10.
    expected = 6 * 26 + 16 * 151 + 120 * 401 + 84 * 121 + 10 * 85
    assert count(LeNet5().build((1, 28, 28), 10)) == expected == 61706


def test_resnet18_has_its_number_of_weights() -> None:
    # The network of many CIFAR studies: 11.17 million weights with ten classes.
    assert count(ResNet18().build((3, 32, 32), 10)) == 11_173_962


@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 9, 7), (1, 28, 28)])
def test_cnn_takes_images_of_any_size(shape: tuple[int, ...]) -> None:
    assert CNN(width=2).build(shape, 5)(torch.rand(2, *shape)).shape == (2, 5)


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 20, 33), (1, 40, 40)])
def test_lenet5_pads_small_images(shape: tuple[int, ...]) -> None:
    assert LeNet5().build(shape, 5)(torch.rand(2, *shape)).shape == (2, 5)


def test_residual_block_adds_its_shortcut() -> None:
    block = Residual(3, 3, 1, "relu").eval()
    x = torch.randn(2, 3, 5, 5)
    torch.testing.assert_close(block(x), torch.relu(block.body(x) + x))
    changed = Residual(3, 4, 2, "tanh").eval()
    torch.testing.assert_close(changed(x), torch.tanh(changed.body(x) + changed.shortcut(x)))
    assert changed(x).shape == (2, 4, 3, 3)
