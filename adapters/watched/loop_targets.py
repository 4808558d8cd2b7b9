"""Whether the target of a loss function is of a batch, by its numbers."""

import torch

__all__ = ["are_places", "is_of"]

TASKS = 16
"""Of a tensor with more columns, such as tokens or their mask, one may equal any target by chance."""


def is_of(leaf: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether a target is a tensor of a batch, as it is or one hot, a column, the end, or all but the first token."""
    if leaf.ndim == 1 and target.ndim == 2 and len(leaf) == len(target) and target.shape[1] > 1:
        return _is_of_labels(target) and _has_labels(target, leaf)
    if _are_equal(leaf, target):
        return True
    if leaf.ndim == target.ndim == 3 and len(leaf) == len(target):  # of a series the end is predicted
        return _are_equal(leaf[:, -target.shape[1] :, -target.shape[2] :], target)
    if leaf.ndim != 2 or leaf.shape[1] < 2:
        return False
    if target.ndim == 1 and len(leaf) == len(target) and leaf.shape[1] <= TASKS:  # each task has a column
        rounds = leaf.is_floating_point() and not target.is_floating_point()  # inputs would look like labels
        return not rounds and bool((leaf.to(target.dtype) == target[:, None]).all(0).any())
    if target.numel() == leaf.numel():
        target = target.reshape(leaf.shape)[:, :-1]
    return _are_equal(leaf[:, 1:], target)  # of tokens the next ones are predicted


def _is_of_labels(target: torch.Tensor) -> bool:
    """Whether probabilities of classes are labels, also smoothed or mixed: all but one or two in a row are the lowest.

    Those of a network, such as a teacher, are other ones, though the likeliest classes may be the labels.
    """
    rows, classes = target.shape
    lowest = int((target == target.min()).sum())
    return lowest >= (max(rows * (classes - 2), 2) if rows > 1 else classes - 1)


def _has_labels(target: torch.Tensor, leaf: torch.Tensor) -> bool:
    """Whether probabilities of classes have a part for the label of each row, which may be mixed with another."""
    labels = leaf.long()
    if not _are_equal(leaf, labels) or labels.min() < 0 or labels.max() >= target.shape[1]:
        return False
    return bool((target.gather(1, labels[:, None]) > target.min()).all())


def _are_equal(leaf: torch.Tensor, target: torch.Tensor) -> bool:
    return leaf.numel() == target.numel() and torch.equal(leaf.flatten().to(target.dtype), target.flatten())


def are_places(target: torch.Tensor) -> bool:
    """Whether a target counts the samples of any batch, as where pairs are compared with the others of their batch.

    The index of the samples in a first batch equals it by chance.
    """
    return target.numel() > 2 and torch.equal(target, torch.arange(target.numel(), device=target.device))
