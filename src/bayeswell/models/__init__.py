"""Plain networks that know nothing of Bayes, by name; and any network made of torch's own layers as plain data."""

from .dense import MLP, SmallMLP
from .densenet import DenseNet161
from .description import build_network, describe_network
from .lenet import CNN, LeNet5, LeNetHWA, LeNetWide
from .preresnet import PreactResNet18, PreResNet164, ResNetTFP, WideResNet
from .recurrent import LSTM
from .resnet import ResNet10, ResNet18, ResNet152
from .settings import ACTIVATIONS, ModelPart
from .vgg import VGG
from .zoo import MODELS, build_model, default_model

__all__ = [
    "ACTIVATIONS",
    "CNN",
    "LSTM",
    "MLP",
    "MODELS",
    "VGG",
    "DenseNet161",
    "LeNet5",
    "LeNetHWA",
    "LeNetWide",
    "ModelPart",
    "PreResNet164",
    "PreactResNet18",
    "ResNet10",
    "ResNet18",
    "ResNet152",
    "ResNetTFP",
    "SmallMLP",
    "WideResNet",
    "build_model",
    "build_network",
    "default_model",
    "describe_network",
]
