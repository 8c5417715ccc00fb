"""A prior laid out over the flat weight vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..registry import label_of, settings_of
from ..tree import Layout, Site
from ..types import PriorPart
from .centres import ZERO
from .normal import GaussianDensity


class _Run(nn.Module):
    """Neighbouring sites with one kind of density; keeps a column of parameters for each site."""

    columns: Tensor

    def __init__(self, parts: Sequence[PriorPart], layout: Layout, start: int, like: Tensor) -> None:
        super().__init__()
        self.density: Any = parts[0].density
        self.layout = layout
        self.start, self.stop = start, start + layout.size
        rows = [part.parameters(site) for part, site in zip(parts, layout.sites, strict=True)]
        self.register_buffer("columns", torch.tensor(rows, dtype=like.dtype, device=like.device).T.contiguous())

    def parameters_of_density(self) -> list[Tensor]:
        """Each parameter as a scalar where all sites agree, else spread over the weights."""
        return [
            column[0] if bool((column == column[0]).all()) else self.layout.spread(column) for column in self.columns
        ]


class FlatPrior(nn.Module):
    """Independent prior densities for every weight, one choice a site.

    Sites of one kind that lie side by side form a run; a network with one prior is a single run, so all
    work is on whole vectors. Where all of it is Gaussian, ``inverse_variance_by_site`` (1/s^2) and ``log_std_sum`` (sum
    of log s) hold all that the KL of a factorised posterior needs.
    """

    inverse_variance_by_site: Tensor | None
    log_std_sum: Tensor | None
    centre: Tensor | None

    def __init__(self, layout: Layout, parts: Sequence[PriorPart], *, like: Tensor) -> None:
        super().__init__()
        self.layout = layout
        self.parts = tuple(parts)
        self.runs = nn.ModuleList()
        start = 0
        paired = zip(layout.sites, self.parts, strict=True)
        for _, members in groupby(paired, key=lambda pair: pair[1].density):
            sites, choices = zip(*members, strict=True)
            run = _Run(choices, Layout(sites), start, like)
            self.runs.append(run)
            start = run.stop
        self.register_buffer("inverse_variance_by_site", None, persistent=False)
        self.register_buffer("log_std_sum", None, persistent=False)
        self.register_buffer("centre", self._find_centre(like))
        self._derive()
        self.register_load_state_dict_post_hook(_derive_again)

    @property
    def inverse_variance(self) -> Tensor | None:
        """1/s^2 of a Gaussian prior: a scalar where all sites agree, else (P,), made when asked for and not kept."""
        by_site = self.inverse_variance_by_site
        if by_site is None:
            return None
        return by_site[0] if self._agree else self.layout.spread(by_site)

    def _find_centre(self, network: Tensor) -> Tensor | None:
        """(P,): the network's weights where a prior is centred on them, zero elsewhere; None if all are at zero."""
        if all(part.centre == ZERO for part in self.parts):
            return None
        centre = torch.zeros_like(network)
        for site, part in zip(self.layout.sites, self.parts, strict=True):
            if part.centre != ZERO:
                centre[self.layout.slices[site.name]] = network.detach()[self.layout.slices[site.name]]
        return centre

    def _derive(self) -> None:
        if any(part.density is not GaussianDensity for part in self.parts):
            return
        (run,) = self._each_run()
        by_site = run.columns[0]
        # float64, as the sum runs over millions of weights.
        std, counts = by_site.double(), torch.tensor(self.layout.sizes, dtype=torch.float64, device=by_site.device)
        self.inverse_variance_by_site = std.square().reciprocal().to(by_site.dtype)
        self.log_std_sum = (counts * std.log()).sum().to(by_site.dtype)
        self._agree = bool((by_site == by_site[0]).all())

    def set_scale(self, scale: float | Mapping[str, float]) -> None:
        """Make every std ``scale`` times that of the parts, one number or one by site; only a Gaussian prior can."""
        if self.inverse_variance_by_site is None:
            return
        for run in self._each_run():
            sites = run.layout.sites
            rows = [part.parameters(site) for part, site in zip(self.parts, sites, strict=True)]
            scales = [scale[site.name] if isinstance(scale, Mapping) else scale for site in sites]
            run.columns.copy_(torch.tensor(rows, dtype=torch.float64).T * torch.tensor(scales, dtype=torch.float64))
        self._derive()

    def _each_run(self) -> list[_Run]:
        return [cast(_Run, run) for run in self.runs]

    @property
    def analytic(self) -> bool:
        """Whether E_q[log p] has a closed form under Gaussian marginals."""
        return all(part.density.analytic for part in self.parts)

    def without_closed_form(self) -> str:
        """The names of the priors that have none."""
        return ", ".join(dict.fromkeys(label_of(part) for part in self.parts if not part.density.analytic))

    def log_prob(self, weights: Tensor) -> Tensor:
        """(D, P) -> (D,): log p(w)."""
        weights = weights if self.centre is None else weights - self.centre
        total = weights.new_zeros(weights.shape[:-1])
        for run in self._each_run():
            values = run.density.log_prob(weights[..., run.start : run.stop], *run.parameters_of_density())
            total = total + values.sum(-1)
        return total

    def expected_log_prob(self, mean: Tensor, std: Tensor) -> Tensor:
        """E[log p(w)] for independent w_i ~ N(mean_i, std_i^2)."""
        mean = mean if self.centre is None else mean - self.centre
        total = mean.new_zeros(())
        for run in self._each_run():
            part = slice(run.start, run.stop)
            total = total + run.density.expected_log_prob(mean[part], std[part], *run.parameters_of_density()).sum()
        return total

    def std_vector(self) -> Tensor:
        """(P,): prior standard deviation of each weight."""
        pieces = [
            run.density.std(*run.parameters_of_density()).expand(run.stop - run.start) for run in self._each_run()
        ]
        return torch.cat(pieces)

    @property
    def independent(self) -> bool:
        """Whether it is a product over weights: always."""
        return True

    def at(self, site: Site) -> FlatPrior:
        """The prior of one site alone, in float64."""
        zeros = self.std_vector().new_zeros(site.size, dtype=torch.float64)
        alone = FlatPrior(Layout((site,)), (self.parts[self.layout.sites.index(site)],), like=zeros)
        alone._each_run()[0].columns.copy_(self._columns_of(site)[:, None])  # as they are now
        alone._derive()
        alone.centre = None if self.centre is None else self.centre[self.layout.slices[site.name]].double()
        return alone

    def _columns_of(self, site: Site) -> Tensor:
        """The density's parameters for one site, with the scale that they have now."""
        run = next(run for run in self._each_run() if site in run.layout.sites)
        return run.columns[:, run.layout.sites.index(site)]

    def explain(self, site: Site) -> str:
        """The prior of one site, for ``describe()``."""
        part = self.parts[self.layout.sites.index(site)]
        std = part.density.std(*self._columns_of(site))
        where = "" if part.centre == ZERO else ", around the given weights"
        return f"{part.name}(std={float(std):.3g}{where})"

    def settings(self) -> list[dict[str, Any]]:
        """The choice for every site as plain data."""
        # The usual centre goes without saying, as in files of older versions.
        described = (settings_of(part) for part in self.parts)
        return [{key: v for key, v in own.items() if (key, v) != ("centre", ZERO)} for own in described]


def _derive_again(prior: FlatPrior, keys: Any) -> None:
    prior._derive()
