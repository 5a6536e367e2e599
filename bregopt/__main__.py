"""``python -m bregopt``: the command line."""

import sys

from bregopt.cli import main

sys.exit(main())
