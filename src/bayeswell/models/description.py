"""A network as plain data, and back: models of the zoo, and whatever is put together from torch's own layers.

A description is JSON: for a model of the zoo its name, settings and shapes; for a layer of ``torch.nn`` the name of its
class, looked up in a fixed table, and the arguments of its constructor; for a container its children. So a description
can build layers and nothing else: nothing in it is run, imported or looked up by attribute. What cannot be described
exactly (classes of one's own, hooks, parametrisations, changed forwards) is not described at all: every description is
built once and compared with the network, attribute by attribute, before it is given out.
"""

from __future__ import annotations

import inspect
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from ..errors import FileError, nearest
from ..plain import plain
from .zoo import BUILT_FROM, build_model

MOST_NUMBERS = 10**9
"""No description builds a network with more parameters and buffers than this."""

MOST_MODULES = 20_000
"""... nor with more modules, each counted as often as it stands in the network."""

_MOST_LAYERS = 1000
_MOST_ENTRIES = 16
_MOST_EXTENT = {
    "padding": 1024, "output_padding": 1024, "output_size": 4096, "size": 4096, "scale_factor": 64,
    "unflattened_size": 10**6,
}  # fmt: skip
"""Settings that no weight in the file answers for, and that decide how large a network's outputs are."""

_CONTAINERS: dict[str, type[nn.Module]] = {
    kind.__name__: kind for kind in (nn.Sequential, nn.ModuleList, nn.ModuleDict)
}
_NAMES = """
    Linear Bilinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Embedding EmbeddingBag
    RNN LSTM GRU RNNCell LSTMCell GRUCell MultiheadAttention TransformerEncoderLayer
    BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d InstanceNorm3d LayerNorm GroupNorm RMSNorm
    LocalResponseNorm
    Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout
    ReLU ReLU6 LeakyReLU PReLU ELU CELU SELU GELU SiLU Mish Softplus Softsign Tanh Tanhshrink Sigmoid LogSigmoid
    Hardtanh Hardswish Hardsigmoid Hardshrink Softshrink Threshold GLU Softmax Softmax2d Softmin LogSoftmax
    MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d LPPool1d LPPool2d LPPool3d
    AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d
    Flatten Unflatten Identity Upsample PixelShuffle PixelUnshuffle ChannelShuffle Fold Unfold
    ZeroPad1d ZeroPad2d ZeroPad3d ConstantPad1d ConstantPad2d ConstantPad3d CircularPad1d CircularPad2d CircularPad3d
    ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d
"""
_LAYERS: dict[str, type[nn.Module]] = {name: getattr(nn, name) for name in _NAMES.split()}

_NOT_SETTINGS = ("device", "dtype", "args", "kwargs")
_FUNCTIONS = {F.relu: "relu", F.gelu: "gelu"}
# Tensors are compared by name and shape; RNNs also keep them in lists. A chance of dropout says nothing about what a
# network predicts, and dropout that is drawn has its own record of it.
_NOT_COMPARED = {"_parameters", "_buffers", "_modules", "training", "_flat_weights", "_flat_weight_refs", BUILT_FROM}


def describe_network(net: nn.Module) -> dict[str, Any] | None:
    """The network's structure as JSON-ready data for ``build_network``; None if it cannot be described exactly.

    Weights are not part of it, their dtype is. Tensors may be on the device "meta".
    """
    try:
        dtypes = {str(t.dtype) for t in _tensors(net).values() if t.is_floating_point()}
        if len(dtypes) > 1:
            return None
        found = {"dtype": dtypes.pop().removeprefix("torch.") if dtypes else "float32", "root": _node(net, "", {})}
        description: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))
        same = _same(net, _build_on_meta(description))
    except Exception:  # whatever goes wrong with a network of a kind we do not know: it is not describable
        return None
    return description if same else None


def build_network(description: Any, *, most: int = MOST_NUMBERS, device: str = "cpu") -> nn.Module:
    """The network that ``describe_network`` described, with new weights; without memory on the device "meta".

    Descriptions may come from anywhere: whatever is not one raises FileError. Sizes are found out without memory;
    a network of more than ``most`` parameters and buffers is refused. torch's random numbers are left as they were.
    """
    try:
        count = sum(tensor.numel() for tensor in _tensors(_build_on_meta(description)).values())
        if count > most:
            raise FileError(f"it has {count} parameters and buffers; allowed are {most}")
        with torch.random.fork_rng(devices=[]), torch.device(device):
            return _build(description)
    except FileError as error:
        raise FileError(f"the description of the network cannot be used: {error}") from error
    except Exception as error:  # torch's constructors raise of all kinds on bad arguments
        detail = " ".join(str(error).split())
        raise FileError(
            f"the description of the network cannot be used: {type(error).__name__}: {detail:.160}"
        ) from error


# From a network to data.


def _node(module: nn.Module, path: str, seen: dict[int, str]) -> dict[str, Any]:
    """One module as data; ValueError if it is of a kind that cannot be."""
    if id(module) in seen:
        return {"same_as": seen[id(module)]}
    seen[id(module)] = path
    built_from = vars(module).get(BUILT_FROM)
    if built_from is not None and _is_as_built(module, built_from):
        return {"built_from": built_from}
    kind = type(module).__name__
    if _CONTAINERS.get(kind) is type(module):
        # Twice in one container is twice: ``named_children`` would leave the second out.
        held = {name: child for name, child in module._modules.items() if child is not None}
        children = {name: _node(child, _join(path, name), seen) for name, child in held.items()}
        return {"class": kind, "children": children}
    if _LAYERS.get(kind) is not type(module):
        raise ValueError(f"{kind} is not a class of torch.nn that is known here")
    return {"class": kind, "settings": _settings(module)}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_as_built(module: nn.Module, built_from: Any) -> bool:
    """Whether a model of the zoo is still what it was built as; a user may have put in another layer."""
    with _quietly(), torch.device("meta"):
        fresh = _from_zoo(built_from)
    floating = [t.dtype for t in module.parameters() if t.is_floating_point()]
    return _same(module, fresh.to(floating[0]) if floating else fresh)


def _settings(module: nn.Module) -> dict[str, Any]:
    """The constructor's arguments, read off the module's attributes."""
    special = _SPECIAL.get(type(module))
    if special is not None:
        return {name: plain(value, _refuse) for name, value in special(module).items()}
    found = {}
    for name in _arguments(type(module)):
        if name == "bias":
            found[name] = any(key.startswith("bias") for key, value in module._parameters.items() if value is not None)
        elif hasattr(module, name):
            found[name] = plain(getattr(module, name), _refuse)
    # A layer that has no weight of its own says nothing of a bias.
    if not found.get("affine", found.get("elementwise_affine", True)):
        found.pop("bias", None)
    return found


def _arguments(kind: type[nn.Module]) -> list[str]:
    """The names of a constructor's arguments that settings may hold."""
    constructor: Any = nn.RNNBase if issubclass(kind, nn.RNNBase) else kind
    names = [name for name in inspect.signature(constructor).parameters if not name.startswith("_")]
    kept = [name for name in names if name not in _NOT_SETTINGS]
    if not issubclass(kind, nn.RNNBase):
        return kept
    kept.remove("mode")  # it is the class
    if kind is not nn.LSTM:
        kept.remove("proj_size")
    return [*kept, "nonlinearity"] if kind is nn.RNN else kept


def _refuse(value: Any) -> Any:
    raise ValueError(f"{type(value).__name__} is not plain data")


def _attention(module: Any) -> dict[str, Any]:
    names = ("embed_dim", "num_heads", "dropout", "add_zero_attn", "kdim", "vdim", "batch_first")
    bias, bias_kv = module.in_proj_bias is not None, module.bias_k is not None
    return {**{name: getattr(module, name) for name in names}, "bias": bias, "add_bias_kv": bias_kv}


def _encoder_layer(module: Any) -> dict[str, Any]:
    attention = module.self_attn
    return {
        "d_model": attention.embed_dim, "nhead": attention.num_heads, "dim_feedforward": module.linear1.out_features,
        "dropout": attention.dropout, "activation": _FUNCTIONS[module.activation],
        "layer_norm_eps": module.norm1.eps, "batch_first": attention.batch_first, "norm_first": module.norm_first,
        "bias": module.linear1.bias is not None,
    }  # fmt: skip


_SPECIAL = {
    nn.MultiheadAttention: _attention,
    nn.TransformerEncoderLayer: _encoder_layer,
    nn.PReLU: lambda module: {"num_parameters": module.num_parameters, "init": module.init},
}


def _same(one: nn.Module, other: nn.Module) -> bool:
    """Whether two networks compute the same, given the same tensors: modules, attributes, names, shapes, sharing."""
    ones, others = (list(net.named_modules(remove_duplicate=False)) for net in (one, other))
    if [name for name, _ in ones] != [name for name, _ in others]:
        return False
    if not all(_same_module(a, b) for (_, a), (_, b) in zip(ones, others, strict=True)):
        return False
    return _layout(one) == _layout(other)


def _same_module(one: nn.Module, other: nn.Module) -> bool:
    if type(one) is not type(other):
        return False
    skipped = _NOT_COMPARED | ({"p"} if isinstance(one, _DropoutNd) else set())
    mine, others = ({k: _frozen(v) for k, v in vars(m).items() if k not in skipped} for m in (one, other))
    return bool(mine == others)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list | tuple) else value


def _tensors(net: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers; each once, under its first name."""
    return {**dict(net.named_parameters()), **dict(net.named_buffers())}


def _layout(net: nn.Module) -> list[tuple[Any, ...]]:
    """Name, shape, type and first name of every tensor, shared ones included."""
    first: dict[int, str] = {}
    rows: list[tuple[Any, ...]] = []
    for found in (net.named_parameters(remove_duplicate=False), net.named_buffers(remove_duplicate=False)):
        for name, tensor in found:
            rows.append((name, tuple(tensor.shape), tensor.dtype, first.setdefault(id(tensor), name)))
    return rows


# From data to a network.


def _build_on_meta(description: Any) -> nn.Module:
    """The network without memory for its tensors."""
    with _quietly(), torch.device("meta"):
        return _build(description)


def _build(description: Any) -> nn.Module:
    _require_keys(description, "the description", "dtype", "root")
    dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
    chosen = description["dtype"]
    if not isinstance(chosen, str) or chosen not in dtype:
        raise FileError(f"dtype {chosen!r:.40}; {nearest(str(chosen)[:40], dtype)}")
    with _quietly():
        return _Builder().build(description["root"], "").to(dtype[chosen])


class _Builder:
    """Builds a network node by node; ``same_as`` may only point back, to what is whole already."""

    def __init__(self) -> None:
        self.made: dict[str, nn.Module] = {}
        self.sizes: dict[str, int] = {}
        """How many modules each of them is, as often as they stand in it: repeats of repeats double at each level."""
        self.total = 0

    def build(self, node: Any, path: str) -> nn.Module:
        """The module that a node describes."""
        before = self.total
        module = _build_node(node, path, self)
        if path not in self.made:
            self.made[path] = module
        self.sizes[path] = self.total - before
        return module

    def count(self, modules: int) -> None:
        """So many more; refused before they are too many."""
        self.total += modules
        if self.total > MOST_MODULES:
            raise FileError(f"it has more than {MOST_MODULES} modules")


def _build_node(node: Any, path: str, builder: _Builder) -> nn.Module:
    made = builder.made
    if not isinstance(node, Mapping):
        raise FileError(f"{_at(path)} is a {type(node).__name__}, not a module")
    if "same_as" in node:
        _require_keys(node, _at(path), "same_as")
        if not isinstance(node["same_as"], str) or node["same_as"] not in made:
            raise FileError(f"{_at(path)} repeats {node['same_as']!r:.40}, which does not stand before it")
        builder.count(builder.sizes[node["same_as"]])
        return made[node["same_as"]]
    builder.count(1)
    if "built_from" in node:
        _require_keys(node, _at(path), "built_from")
        return _from_zoo(node["built_from"])
    kind = node.get("class")
    if not isinstance(kind, str) or kind not in {**_CONTAINERS, **_LAYERS}:
        raise FileError(f"{_at(path)} is of the class {kind!r:.60}, which is not a layer of torch.nn known here")
    if kind in _LAYERS:
        _require_keys(node, _at(path), "class", "settings")
        return _build_layer(_LAYERS[kind], node["settings"], path)
    _require_keys(node, _at(path), "class", "children")
    if not isinstance(node["children"], Mapping):
        raise FileError(f"{_at(path)}: children is a {type(node['children']).__name__}, not a mapping")
    container = _CONTAINERS[kind]()
    for name, child in node["children"].items():
        container.add_module(name, builder.build(child, _join(path, name)))
    return container  # known under its name only now: none of its children can be the container itself


def _at(path: str) -> str:
    """A place in the network for a message of one short line, whatever the names in the file are."""
    return f"module {path!r:.60}" if path else "the root"


def _build_layer(kind: type[nn.Module], settings: Any, path: str) -> nn.Module:
    where = f"{_at(path)} ({kind.__name__})"
    if not isinstance(settings, Mapping):
        raise FileError(f"{where}: settings is a {type(settings).__name__}, not a mapping")
    allowed = _arguments(kind)
    for name, value in settings.items():
        if name not in allowed:
            raise FileError(f"{where} has no setting {name!r:.40}")
        _check_value(f"{where}: {name}", value, _MOST_EXTENT.get(name, MOST_NUMBERS))
        if name == "num_layers" and value > _MOST_LAYERS:
            raise FileError(f"{where}: num_layers = {value}; at most {_MOST_LAYERS}")
    return kind(**{name: _tuples(value) for name, value in settings.items()})


def _check_value(where: str, value: Any, most: int) -> None:
    """Numbers, words and short lists of numbers are all that layers are made from."""
    items = value if isinstance(value, list) else [value]
    if len(items) > _MOST_ENTRIES:
        raise FileError(f"{where} has {len(items)} entries; at most {_MOST_ENTRIES}")
    for item in items:
        if not (item is None or isinstance(item, bool | int | float | str)):
            raise FileError(f"{where} holds a {type(item).__name__}")
        if isinstance(item, int | float) and not (math.isfinite(item) and abs(item) <= most):
            raise FileError(f"{where} = {item}; numbers go up to {most}")


def _from_zoo(record: Any) -> nn.Module:
    _require_keys(record, "built_from", "model", "input_shape", "outputs", "vocabulary")
    if not isinstance(record["model"], Mapping) or not isinstance(record["input_shape"], list):
        raise FileError("built_from: model must be a mapping and input_shape a list")
    if len(record["input_shape"]) > _MOST_ENTRIES:
        raise FileError(f"built_from: input_shape has {len(record['input_shape'])} entries; at most {_MOST_ENTRIES}")
    for name, value in record["model"].items():
        if isinstance(value, list | tuple | str) and len(value) > _MOST_LAYERS:
            raise FileError(f"built_from: {name!r:.40} has {len(value)} entries; at most {_MOST_LAYERS}")
    settings = {name: _tuples(value) for name, value in record["model"].items()}
    return build_model(settings, tuple(record["input_shape"]), record["outputs"], vocabulary=record["vocabulary"])


def _tuples(value: Any) -> Any:
    """JSON knows no tuples; settings that are sequences are tuples."""
    return tuple(value) if isinstance(value, list) else value


def _require_keys(value: Any, what: str, *keys: str) -> None:
    if not isinstance(value, Mapping) or set(value) != set(keys):
        found = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
        raise FileError(f"{what} must have {', '.join(keys)}; it is {found!s:.80}")


@contextmanager
def _quietly() -> Iterator[None]:
    """Without torch's remarks on sizes and settings, which its user has seen when the network was first built."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
