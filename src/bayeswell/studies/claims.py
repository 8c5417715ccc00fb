"""Claims of a paper, each with a rule that decides before the runs what will be said of it.

    [[claims]]
    name = "two-tied-nll"
    text = "2-tied loses no NLL against mean-field"
    where = "Figure 6, page 8"
    better = "k-tied-2"            # the rule: d = gain of this cell over that one, in pairs over seeds,
    than = "mean-field"            # holds if d is at least two standard errors above -not_worse_by
    score = "nll"
    not_worse_by = 0.01

The rules, of which a claim has one:

==================  ================================================================================================
``better, than``    d > 0 and d >= z se, z = ``by_at_least_errors`` (2 unless said). With ``effect`` (else the
                    difference of the paper's printed numbers, if there are any) a claim that fails is "not testable"
                    as long as d + z se still reaches the effect: the runs could not have seen it. ``than_score``
                    compares two scores. ``not_worse_by`` m claims no loss: d - z se >= -m; it fails if d + z se < -m,
                    and is not told between, so that noise never makes it true
``same, within``    the difference of two cells lies inside +-within, with z standard errors to spare
``value, between``  a cell's score lies inside an interval, with z standard errors to spare (``exact``: none needed)
``ratio, to``       the same of the ratio of two cells' scores
``trend, along``    the score of a cell ``rises`` or ``falls`` along a setting of the grid: slope >= z se
``not_testable``    why it cannot be told here
==================  ================================================================================================

Two cells all of whose scores are equal in every run were set apart by nothing: a claim about them is "not testable".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import SettingError, nearest
from ..metrics.estimates import Estimate
from .statistics import higher_is_better, over_seeds, paired, ratios, slope

HOLDS = "holds"
"""The rule of the claim is met."""
FAILS = "does not hold"
"""The rule of the claim is not met."""
UNTESTED = "not testable at this scale"
"""The runs of this scale could not have seen what is claimed."""
UNKNOWN = "no results yet"
"""No verdict: the runs that a claim is about are not there."""
_RULES = {
    "better": ("than", "score"), "same": ("score", "within"), "value": ("score", "between"),
    "ratio": ("to", "score", "between"), "trend": ("along", "score", "of"), "not_testable": (),
}  # fmt: skip
_OPTIONAL = ("by_at_least_errors", "not_worse_by", "effect", "than_score", "at", "than_at", "higher", "exact",
             "control_of", "means", "scales", "where", "why", "headline")  # fmt: skip
_USUAL_ERRORS = 2.0


@dataclass(frozen=True)
class Claim:
    """``rule`` is the name of the rule, ``settings`` what the file says of it; ``control_of`` another claim.

    ``headline`` is how the index of all papers says it, of the few claims that a paper is known for."""

    name: str
    text: str
    rule: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""
    control_of: str = ""
    means: str = ""
    headline: str = ""

    @property
    def errors(self) -> float:
        """How many standard errors the rule asks for."""
        return float(self.settings.get("by_at_least_errors", _USUAL_ERRORS))

    @property
    def two_cells(self) -> tuple[tuple[str, Mapping[str, Any]], tuple[str, Mapping[str, Any]]]:
        """What a rule about two cells compares: label and point of the grid of each."""
        s = self.settings
        labels = s["same"] if self.rule == "same" else (s[self.rule], s["than" if self.rule == "better" else "to"])
        at = s.get("at", {})
        return (labels[0], at), (labels[1], s.get("than_at", at))

    @property
    def in_words(self) -> str:
        """The rule as a sentence."""
        s, score = self.settings, self.settings.get("score", "")
        within = f"with {self.errors:g} standard errors to spare"
        if self.rule == "better":
            other = f" than its {s['than_score']}" if "than_score" in s else ""
            if "not_worse_by" in s:
                return (
                    f"{s['better']} worse than {s['than']} in {score}{other} by at most {s['not_worse_by']:g}, {within}"
                )
            return f"{s['better']} better than {s['than']} in {score}{other} by >= {self.errors:g} standard errors"
        if self.rule == "same":
            return f"{' and '.join(s['same'])} differ in {score} by at most {s['within']:g}, {within}"
        if self.rule in ("value", "ratio"):
            low, high = s["between"]
            what = s["value"] if self.rule == "value" else f"{s['ratio']} / {s['to']}"
            return f"{score} of {what} in [{low:g}, {high:g}]" + ("" if s.get("exact") else f", {within}")
        if self.rule == "trend":
            return f"{score} of {s['of']} {s['trend']} along {s['along']} by >= {self.errors:g} standard errors"
        return str(s["not_testable"])


@dataclass(frozen=True)
class Verdict:
    """``word`` is one of the four; ``found`` the number that decided, ``said`` in words; ``printed`` the paper's."""

    word: str
    said: str
    found: Estimate | None = None
    printed: float | None = None


Values = Callable[[str, Mapping[str, Any], str], Mapping[int, float]]
"""(label, point of the grid, score) -> value by seed; without a point, those of the point that was chosen."""
Points = Callable[[str, str, str], Sequence[Mapping[int, float]]]
"""(label, path of the grid, score) -> values by seed, point by point."""
PrintedValue = Callable[[str, Mapping[str, Any], str], float | None]


def read_claims(file: str, tables: Sequence[Mapping[str, Any]], cells: Mapping[str, Any]) -> tuple[Claim, ...]:
    """The claims of a study file, each with exactly one rule, about cells that there are."""
    claims: list[Claim] = []
    for table in tables:
        name = str(table.get("name", ""))
        rules = [rule for rule in _RULES if rule in table]
        if not name or "text" not in table or len(rules) != 1:
            raise SettingError(
                f"{file}: claim {name or dict(table)!r:.60}: a name, a text and one of {', '.join(_RULES)}"
            )
        rule = rules[0]
        allowed = ("name", "text", rule, *_RULES[rule], *_OPTIONAL)
        for key in table:
            if key not in allowed:
                raise SettingError(f"{file}: claim '{name}': unknown key '{key}'; {nearest(key, allowed)}")
        for key in _RULES[rule]:
            if key not in table:
                raise SettingError(f"{file}: claim '{name}': '{rule}' needs '{key}'")
        for label in _labels(rule, table):
            if label not in cells:
                raise SettingError(f"{file}: claim '{name}': no cell '{label}'; {nearest(str(label), cells)}")
        _require_margins(file, name, rule, table)
        if rule == "trend" and table["trend"] not in ("rises", "falls"):
            raise SettingError(f"{file}: claim '{name}': trend = {table['trend']!r}; rises or falls")
        extra = ("name", "text", "where", "control_of", "means", "headline")
        said = {key: value for key, value in table.items() if key not in extra}
        claims.append(Claim(name, table["text"], rule, said, *(str(table.get(key, "")) for key in extra[2:])))
    names = [claim.name for claim in claims]
    for claim in claims:
        if names.count(claim.name) > 1:
            raise SettingError(f"{file}: two claims are called '{claim.name}'")
        if claim.control_of and claim.control_of not in names:
            raise SettingError(
                f"{file}: claim '{claim.name}': control_of: no claim '{claim.control_of}'; "
                f"{nearest(claim.control_of, names)}"
            )
    return tuple(claims)


def _require_margins(file: str, name: str, rule: str, table: Mapping[str, Any]) -> None:
    if "not_worse_by" in table and rule != "better":
        raise SettingError(f"{file}: claim '{name}': 'not_worse_by' belongs to the rule 'better'")
    for key in ("by_at_least_errors", "not_worse_by"):
        value = table.get(key, 1)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            said = "; with fewer than 0 errors noise would make it true: 'not_worse_by' says what no loss is"
            raise SettingError(
                f"{file}: claim '{name}': {key} = {value!r}; it must be above 0{said if key != 'not_worse_by' else ''}"
            )


def _labels(rule: str, table: Mapping[str, Any]) -> list[Any]:
    keys = {"better": ("better", "than"), "value": ("value",), "ratio": ("ratio", "to"), "trend": ("of",)}.get(rule, ())
    return list(table["same"]) if rule == "same" else [table[key] for key in keys]


def judge(claim: Claim, scale: str, judges: bool, values: Values, points: Points, printed: PrintedValue) -> Verdict:
    """What the results say of a claim, by its rule alone."""
    s = claim.settings
    if claim.rule == "not_testable":
        return Verdict(UNTESTED, str(s["not_testable"]))
    if scale not in s.get("scales", [scale]):
        return Verdict(UNTESTED, str(s.get("why", f"only at the scale {', '.join(s['scales'])}")))
    found, shown = _measured(claim, values, points, printed)
    if found is None:
        return Verdict(UNKNOWN, "", printed=shown)
    if s.get("exact"):
        low, high = s["between"]
        return _verdict(HOLDS if low <= found.value <= high else FAILS, found, shown)
    if not judges:
        return Verdict(UNTESTED, f"{_number(found)}; the scale {scale} shows only that it runs", found, shown)
    if found.error is None:
        return Verdict(UNTESTED, f"{_number(found)}; one seed has no standard error", found, shown)
    if claim.rule in ("better", "trend"):
        return _one_sided(claim, found, shown)
    low, high = (-s["within"], s["within"]) if claim.rule == "same" else s["between"]
    margin = claim.errors * found.error
    if low <= found.value - margin and found.value + margin <= high:
        return _verdict(HOLDS, found, shown)
    if found.value + margin < low or found.value - margin > high:
        return _verdict(FAILS, found, shown)
    return _verdict(UNTESTED, found, shown, "; not told from the edge: more seeds")


def _one_sided(claim: Claim, found: Estimate, shown: float | None) -> Verdict:
    assert found.error is not None
    spare = claim.errors * found.error
    if "not_worse_by" in claim.settings:
        margin = claim.settings["not_worse_by"]
        if found.value - spare >= -margin:
            return _verdict(HOLDS, found, shown)
        if found.value + spare < -margin:
            return _verdict(FAILS, found, shown)
        return _verdict(UNTESTED, found, shown, f"; not told from a loss of {margin:g}: more seeds")
    if found.value >= spare and found.value > 0:
        return _verdict(HOLDS, found, shown)
    effect = claim.settings.get("effect", shown if claim.rule == "better" else None)
    reach = found.value + spare
    if effect is not None and effect > 0 and reach >= effect:
        return _verdict(UNTESTED, found, shown, f"; an effect of {effect:.3g} could not have been seen: more seeds")
    opposite = found.value < -spare
    return _verdict(FAILS, found, shown, "; the opposite" if opposite else "; no such difference told")


def _measured(
    claim: Claim, values: Values, points: Points, printed: PrintedValue
) -> tuple[Estimate | None, float | None]:
    """Our number, and the paper's. A gain is positive where the first is better."""
    s, score = claim.settings, str(claim.settings["score"])
    at = s.get("at", {})
    if claim.rule == "trend":
        sign = 1.0 if s["trend"] == "rises" else -1.0
        return _signed(slope(points(s["of"], s["along"], score)), sign), None
    if claim.rule == "value":
        return over_seeds(values(s["value"], at, score)), printed(s["value"], at, score)
    (first, at), (second, other_at) = claim.two_cells
    other = s.get("than_score", score)
    ours = values(first, at, score), values(second, other_at, other)
    theirs = printed(first, at, score), printed(second, other_at, other)
    if claim.rule == "ratio":
        return ratios(*ours), theirs[0] / theirs[1] if theirs[0] is not None and theirs[1] else None
    sign = 1.0 if claim.rule == "same" or s.get("higher", higher_is_better(score)) else -1.0
    gap = None if theirs[0] is None or theirs[1] is None else sign * (theirs[0] - theirs[1])
    return _signed(paired(*ours), sign), gap


def _signed(found: Estimate | None, sign: float) -> Estimate | None:
    return None if found is None else Estimate(sign * found.value, found.error, over="seeds")


def _verdict(word: str, found: Estimate, shown: float | None, more: str = "") -> Verdict:
    return Verdict(word, f"{_number(found)}{more}", found, shown)


def _number(found: Estimate) -> str:
    exact = found.error is None or found.error == 0
    return f"{found.value:.7g}" if exact else f"{found.value:.4g} ± {found.error:.2g}"
