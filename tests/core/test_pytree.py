"""Nested inputs."""

from __future__ import annotations

import torch

from bayeswell.core.pytree import num_examples, tree_cat, tree_index, tree_map


def test_index_and_cat_are_inverse() -> None:
    tree = {"a": torch.arange(6.0).view(3, 2), "b": (torch.arange(3), "text")}
    parts = [tree_index(tree, slice(0, 1)), tree_index(tree, slice(1, 3))]
    joined = tree_cat(parts)
    assert torch.equal(joined["a"], tree["a"])
    assert torch.equal(joined["b"][0], tree["b"][0])
    assert joined["b"][1] == "text"
    assert num_examples(tree) == 3


def test_map_changes_tensors_alone() -> None:
    doubled = tree_map(lambda t: 2 * t, [torch.ones(2), 3])
    assert doubled[0].tolist() == [2, 2]
    assert doubled[1] == 3
