"""What a model of the zoo declares, and what it refuses before anything is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import nn

from ..errors import NetworkError, SettingError, nearest, require_between, require_count

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
}
"""Activation functions by name."""
POOLINGS: dict[str, type[nn.MaxPool2d] | type[nn.AvgPool2d]] = {"max": nn.MaxPool2d, "average": nn.AvgPool2d}
"""Pooling by name; the mean is smooth in the weights, which variational Laplace needs."""
STEMS = ("small", "large")
"""One 3x3 convolution that keeps the size (CIFAR), or 7x7 and pooling that divide it by 4 (ImageNet)."""

Shape = tuple[int, int, int]
"""Channels, height and width."""

_MOST_LAYERS = 2000


class ModelPart(Protocol):
    """The settings of a network; ``build`` makes it for the shape of one input and a number of outputs."""

    name: ClassVar[str]
    paper: ClassVar[str]

    def build(self, input_shape: tuple[int, ...], outputs: int, *, vocabulary: int | None = None) -> nn.Module:
        """A network from batches of ``input_shape`` to (batch, outputs); ``vocabulary``: how many tokens there are."""
        ...


@dataclass(frozen=True)
class ImageModel:
    """A network for images, whose sides are at least ``least`` (32 with a large stem)."""

    name: ClassVar[str]
    paper: ClassVar[str]
    least: ClassVar[int] = 4

    def __post_init__(self) -> None:
        check_settings(self)

    def build(self, input_shape: tuple[int, ...], outputs: int, *, vocabulary: int | None = None) -> nn.Module:
        """The network from batches of ``input_shape`` to (batch, outputs)."""
        least = 32 if getattr(self, "stem", "") == "large" else self.least
        return self.network(image(self, input_shape, outputs, vocabulary, least), outputs)

    def network(self, shape: Shape, outputs: int) -> nn.Module:
        """The network for images of this shape."""
        raise NotImplementedError


def check_settings(part: Any) -> None:
    """Refuse settings that no network can have; what a setting is called says what it may be."""
    for setting, value in vars(part).items():
        if setting == "activation" and (not isinstance(value, str) or value not in ACTIVATIONS):
            raise SettingError(f"{part.name}: activation = {value!r}; {nearest(str(value), ACTIVATIONS)}")
        if setting == "pooling" and (not isinstance(value, str) or value not in POOLINGS):
            raise SettingError(f"{part.name}: pooling = {value!r}; {nearest(str(value), POOLINGS)}")
        if setting == "stem" and value not in STEMS:
            raise SettingError(f"{part.name}: stem = {value!r}; {nearest(str(value), STEMS)}")
        if setting in ("width", "embedding", "depth"):
            require_count(part.name, setting, value)
        if setting == "depth" and value > _MOST_LAYERS:
            raise SettingError(f"{part.name}: depth = {value}; at most {_MOST_LAYERS}")
        if setting == "dropout":
            require_between(part.name, setting, value, 0, 1, open_high=True)
        if setting == "hidden":
            if not isinstance(value, tuple) or len(value) > _MOST_LAYERS:
                raise SettingError(f"{part.name}: hidden = {value!r:.80}; a tuple of the units of each hidden layer")
            for units in value:
                require_count(part.name, "hidden", units)


def require_depth(part: Any, blocks: int, rest: int) -> int:
    """How many blocks a stage of three has, in a network of blocks * 3 * n + rest layers."""
    depth: int = part.depth
    count, left = divmod(depth - rest, 3 * blocks)
    if left or count < 1:
        allowed = ", ".join(str(3 * blocks * n + rest) for n in (1, 2, 3))
        raise SettingError(f"{part.name}: depth = {depth}; it must be {3 * blocks} n + {rest}: {allowed}, ...")
    return count


def numbers(part: Any, input_shape: tuple[int, ...], outputs: int, vocabulary: int | None) -> tuple[int, ...]:
    """The shape of an input of real numbers; tokens are refused."""
    require_count(part.name, "outputs", outputs)
    shape = _shape(part, input_shape)
    if vocabulary is not None:
        raise NetworkError(
            f"{part.name}: the inputs are tokens (vocabulary {vocabulary}), it takes numbers; use 'lstm'"
        )
    return shape


def image(part: Any, input_shape: tuple[int, ...], outputs: int, vocabulary: int | None, least: int) -> Shape:
    """Channels, height and width of an image with sides of at least ``least``."""
    shape = numbers(part, input_shape, outputs, vocabulary)
    if len(shape) != 3 or min(shape[1:]) < least:
        raise NetworkError(
            f"{part.name}: the input shape is {shape}; it takes images (channels, height, width) with sides of at "
            f"least {least}"
        )
    return shape[0], shape[1], shape[2]


def _shape(part: Any, input_shape: tuple[int, ...]) -> tuple[int, ...]:
    try:
        shape = tuple(input_shape)
    except TypeError:
        shape = ()
    if not shape or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in shape):
        raise NetworkError(
            f"{part.name}: the input shape is {input_shape!r:.80}; a tuple of whole numbers above 0, of one example"
        )
    return shape


def tokens(part: Any, input_shape: tuple[int, ...], outputs: int, vocabulary: int | None) -> int:
    """The number of tokens that there are."""
    require_count(part.name, "outputs", outputs)
    shape = _shape(part, input_shape)
    if vocabulary is None:
        raise NetworkError(f"{part.name}: it takes tokens; say how many there are (vocabulary=20000)")
    require_count(part.name, "vocabulary", vocabulary)
    if len(shape) != 1:
        raise NetworkError(f"{part.name}: the input shape is {shape}; it takes sequences of tokens (length,)")
    return vocabulary
