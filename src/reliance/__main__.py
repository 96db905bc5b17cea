"""``python -m reliance``: see `reliance.cli`."""

from __future__ import annotations

import sys

from reliance.cli import main

if __name__ == "__main__":
    sys.exit(main())
