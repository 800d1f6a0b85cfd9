"""Turn a list of what Colab has installed into a constraints file for the packages that a lesson imports.

    python3 .ci/colab_versions.py pip-freeze.gpu.txt > colab.txt

The list is https://github.com/googlecolab/backend-info/blob/main/pip-freeze.gpu.txt. PyTorch's build
(+cu128) is left out, because the tests run on machines without a GPU.
"""

import re
import sys
from pathlib import Path

PACKAGES = (
    *(
        "torch",
        "cloudpickle",
        "numpy",
        "matplotlib",
        "tqdm",
        "ipython",
        "pyyaml",
        "setuptools",
    ),
    "ipykernel",
    "ipywidgets",
)
LINE = re.compile(r"([\w.-]+)(?:==| @ \S*/\1-)([\d.]+)", re.IGNORECASE)


def constraints(freeze: str) -> list[str]:
    """Return ``name==version`` for each package, in the order of `PACKAGES`.

    Raises
    ------
    ValueError
        Where the list lacks one: then the list, or Colab, has changed its form.
    """
    found = {m[1].lower(): m[2] for line in freeze.splitlines() if (m := LINE.match(line))}
    if missing := [name for name in PACKAGES if name not in found]:
        raise ValueError(f"the list has no version of {', '.join(missing)}: has its form changed?")
    return [f"{name}=={found[name]}" for name in PACKAGES]


if __name__ == "__main__":
    try:
        print(*constraints(Path(sys.argv[1]).read_text(encoding="utf-8")), sep="\n")
    except ValueError as error:
        sys.exit(str(error))
