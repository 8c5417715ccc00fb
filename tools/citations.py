"""The works that methods cite, with their titles and addresses: a citation of the code becomes a link on a page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """A title, and where it can be read; no address where none is known."""

    title: str
    address: str = ""

    def link(self, citation: str) -> str:
        """The citation with its title, as a link where there is an address."""
        return f"{citation}, [{self.title}]({self.address})" if self.address else f"{citation}, *{self.title}*"


def _arxiv(title: str, number: str) -> Work:
    return Work(title, f"https://arxiv.org/abs/{number}")


WORKS = {
    "Blundell et al. 2015": _arxiv("Weight Uncertainty in Neural Networks", "1505.05424"),
    "Chen et al. 2014": _arxiv("Stochastic Gradient Hamiltonian Monte Carlo", "1402.4102"),
    "Gal & Ghahramani 2016": _arxiv("Dropout as a Bayesian Approximation", "1506.02142"),
    "Huang et al. 2017": _arxiv("Snapshot Ensembles: Train 1, Get M for Free", "1704.00109"),
    "Hyperparameters Weight Averaging (HWA)": Work("HWA: Hyperparameters Weight Averaging in Bayesian Neural Networks"),
    "Izmailov et al. 2018": _arxiv("Averaging Weights Leads to Wider Optima and Better Generalization", "1803.05407"),
    "Kingma & Welling 2014": _arxiv("Auto-Encoding Variational Bayes", "1312.6114"),
    "Kingma et al. 2015": _arxiv("Variational Dropout and the Local Reparameterization Trick", "1506.02557"),
    "Lakshminarayanan et al. 2017": _arxiv(
        "Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles", "1612.01474"
    ),
    "Li et al. 2016": _arxiv(
        "Preconditioned Stochastic Gradient Langevin Dynamics for Deep Neural Networks", "1512.07666"
    ),
    "MacKay 1992": Work(
        "A Practical Bayesian Framework for Backpropagation Networks", "https://doi.org/10.1162/neco.1992.4.3.448"
    ),
    "Maddox et al. 2019": _arxiv("A Simple Baseline for Bayesian Uncertainty in Deep Learning", "1902.02476"),
    "Nguyen et al. 2023": _arxiv("Flat Seeking Bayesian Neural Networks", "2302.02713"),
    "Ong et al. 2018": _arxiv(
        "Gaussian Variational Approximation with a Factor Covariance Structure", "1701.03208"
    ),
    "Ritter et al. 2018": Work(
        "A Scalable Laplace Approximation for Neural Networks", "https://openreview.net/forum?id=Skdvd2xAZ"
    ),
    "Shen et al. 2024": _arxiv("Variational Learning is Effective for Large Deep Networks", "2402.17641"),
    "Swiatkowski et al. 2020": _arxiv(
        "The k-tied Normal Distribution: A Compact Parameterization of Gaussian Mean Field Posteriors in Bayesian "
        "Neural Networks", "2002.02655",
    ),
    "Unlu & Aitchison 2021": Work(
        "Gradient Regularization as Approximate Variational Inference", "https://doi.org/10.3390/e23121629"
    ),
    "Welling & Teh 2011": Work(
        "Bayesian Learning via Stochastic Gradient Langevin Dynamics",
        "https://www.stats.ox.ac.uk/~teh/research/compstats/WelTeh2011a.pdf",
    ),
    "Wen et al. 2018": _arxiv(
        "Flipout: Efficient Pseudo-Independent Weight Perturbations on Mini-Batches", "1803.04386"
    ),
    "Zhang et al. 2020": _arxiv(
        "Cyclical Stochastic Gradient MCMC for Bayesian Deep Learning", "1902.03932"
    ),
}  # fmt: skip


def cited(paper: str) -> list[str]:
    """The single citations of a method's ``paper``."""
    return [one.strip() for one in paper.split(";")]


def links(paper: str) -> str:
    """What a method cites, with titles and links."""
    return "; ".join(WORKS[one].link(one) for one in cited(paper))
