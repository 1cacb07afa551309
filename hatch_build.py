"""Compile the guard whenever the package is built or installed, so that a built wheel needs no compiler."""

import importlib.util
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

GUARD = Path("src") / "handrail" / "drivers" / "guard"


class GuardBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """The wheel carries a program, so it is for one platform; the source archive carries what it is made from."""

    def dependencies(self) -> list[str]:
        """Without a compiler, the ziglang wheel provides one. On other systems than Linux nothing is compiled."""
        return (
            [] if sys.platform != "linux" or any(shutil.which(name) for name in ("cc", "gcc", "clang")) else ["ziglang"]
        )

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or sys.platform != "linux":
            return
        build = _load(Path(self.root) / GUARD / "build.py")
        build.build()
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform()}"


def _platform() -> str:
    """A static program needs no particular C library, so it runs on any Linux with this machine's architecture."""
    machine = sysconfig.get_platform().removeprefix("linux-").replace("-", "_")
    return f"manylinux_2_17_{machine}.manylinux2014_{machine}.musllinux_1_1_{machine}"


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("guard_build", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
