"""`python -m nmt` is `nmt`; `torchrun -m nmt train …` starts here."""

import sys

from nmt.cli import main

sys.exit(main())
