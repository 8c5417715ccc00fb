"""What a release is made of: a bill of materials, and the hashes of its files.

    python -m build --outdir dist && python tools/release.py dist
    python tools/release.py dist --check     are they still what they were?

Writes ``bayeswell-VERSION.cdx.json`` (CycloneDX 1.5): every package that an installation with the lab needs, as it is
installed in this environment, with version, licence and home, and who needs whom; and ``SHA256SUMS`` of the wheels, the
source archive and the bill, in the form of ``sha256sum``. The same environment and files give the same bytes. Which of
the packages have known faults is another question: ``pip-audit -r constraints.txt`` answers it, on the network.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PACKAGE, EXTRAS = "bayeswell", ("lab",)
SUMS = "SHA256SUMS"
_KINDS = ("*.whl", "*.tar.gz", "*.cdx.json")


def needed(package: str, extras: tuple[str, ...] = ()) -> dict[str, tuple[metadata.Distribution, tuple[str, ...]]]:
    """Every installed distribution that this one stands on, and itself, by name: with the names of what it needs."""
    found: dict[str, tuple[metadata.Distribution, tuple[str, ...]]] = {}
    waiting: list[tuple[str, tuple[str, ...]]] = [(package, extras)]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        distribution = metadata.distribution(name)
        stands_on = set(found[name][1]) if name in found else set()
        for line in distribution.requires or ():
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in (*wanted, "")):
                continue
            other = canonicalize_name(requirement.name)
            stands_on.add(other)
            waiting.append((other, tuple(sorted(requirement.extras))))
        found[name] = (distribution, tuple(sorted(stands_on - {name})))
    return dict(sorted(found.items()))


def bill(package: str = PACKAGE, extras: tuple[str, ...] = EXTRAS) -> dict[str, Any]:
    """The bill of materials."""
    found = needed(package, extras)
    components = {name: _component(name, distribution) for name, (distribution, _) in found.items()}
    references = {name: component["bom-ref"] for name, component in components.items()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**components.pop(package), "type": "library"}},
        "components": list(components.values()),
        "dependencies": [
            {"ref": references[name], "dependsOn": [references[other] for other in needs]}
            for name, (_, needs) in found.items()
        ],
    }


def _component(name: str, distribution: metadata.Distribution) -> dict[str, Any]:
    about = distribution.metadata.json
    version = distribution.version
    reference = f"pkg:pypi/{name}@{version}"
    component: dict[str, Any] = {
        "type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference,
    }  # fmt: skip
    licence = about.get("license_expression") or _classified(about.get("classifier", [])) or about.get("license")
    if licence:
        component["licenses"] = [{"license": {"name": re.sub(r"\s+", " ", str(licence)).strip()[:100]}}]
    homes = [about.get("home_page"), *(url.split(",", 1)[1].strip() for url in about.get("project_url", []))]
    home = next(filter(None, homes), "")
    if home:
        component["externalReferences"] = [{"type": "website", "url": home}]
    return component


def _classified(classifiers: Any) -> str:
    return "; ".join(line.rsplit(" :: ", 1)[-1] for line in classifiers if line.startswith("License ::"))


def sums(folder: Path) -> str:
    """SHA-256 of every file of the release, in the order of names."""
    files = sorted(path for kind in _KINDS for path in folder.glob(kind))
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def main(arguments: list[str]) -> int:
    """Write the bill and the hashes, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where wheel and source archive are")
    parser.add_argument("--check", action="store_true", help="compare with what was written")
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    if options.check:
        wanted = (folder / SUMS).read_text(encoding="utf-8") if (folder / SUMS).is_file() else ""
        same = wanted != "" and wanted == sums(folder)
        print(f"{SUMS}: {'as written' if same else 'the files are not those that were written down'}")
        return 0 if same else 1
    if not [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]:
        print(
            f"{folder}: there is neither a wheel nor a source archive; `python -m build --outdir {folder}` makes them"
        )
        return 1
    found = bill()
    version = found["metadata"]["component"]["version"]
    for old in folder.glob("*.cdx.json"):
        old.unlink()
    (folder / f"{PACKAGE}-{version}.cdx.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    (folder / SUMS).write_text(sums(folder), encoding="utf-8")
    print(f"{len(found['components'])} packages in the bill; hashes in {folder / SUMS}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
