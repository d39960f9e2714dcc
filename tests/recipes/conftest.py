"""The scripts of `recipes/` are run by name from there; here they are imported as they import each other."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes"))
