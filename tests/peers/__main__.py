"""Put the local backends of other frameworks through the kit and write docs/peers.md: `python3 dev.py peers [NAME…]`.

Each is installed in an environment of its own below .venv/peers, from the registry. With names, only those are tried
again, and the others keep what was found before.
"""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.installing import ROOT, make_environment, must
from tests.peers.page import render
from tests.peers.peers import OURS, PEERS

PAGE = ROOT / "docs" / "peers.md"


def environment(at: Path, package: str) -> Path:
    """The Python of an environment with the package and what Handrail needs."""
    python, installed = at / "bin" / "python", at / "installed"
    if not installed.exists() or installed.read_text() != package:
        at.parent.mkdir(parents=True, exist_ok=True)
        needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
        pip = [sys.executable, "-m", "pip", "--python", make_environment(at), "install", "-q"]
        must(*pip, package, *needed, cwd=ROOT)
        installed.write_text(package)
    return python


def found(name: str, at: Path) -> dict[str, Any]:
    """Put one of them through the kit."""
    python = Path(sys.executable) if name in OURS else environment(at / name, PEERS[name])
    here = f"{ROOT}:{ROOT / 'src'}"
    said = must(python, "-m", "tests.peers.meet", name, cwd=ROOT, PYTHONPATH=here, PYTHONWARNINGS="ignore")
    kept: dict[str, Any] = json.loads(said.splitlines()[-1])
    return kept


def main(names: list[str], page: Path = PAGE) -> None:
    at = ROOT / ".venv" / "peers"
    at.mkdir(exist_ok=True)
    everything = {}
    for name in (*OURS, *PEERS):
        kept = at / f"{name}.json"
        if name in names or not names or not kept.exists():
            sys.stderr.write(f"{name} …\n")
            kept.write_text(json.dumps(found(name, at)))
        everything[name] = json.loads(kept.read_text())
    page.write_text(render(everything), encoding="utf-8")
    sys.stderr.write(f"wrote {page}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
