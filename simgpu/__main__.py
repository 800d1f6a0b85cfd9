"""The command line: ``python -m simgpu run train.py``."""

import sys

from simgpu.run import main

if __name__ == "__main__":
    sys.exit(main())
