"""Twenty examples in batches of eight: three steps an epoch, of which the last is a short one."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

EXAMPLES, BATCH, EPOCHS = 20, 8, 4


def loader() -> DataLoader[Any]:
    torch.manual_seed(4)
    x = torch.randn(EXAMPLES, 3)
    return DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=BATCH)
