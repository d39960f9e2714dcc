"""The strategies that choose tokens; `STRATEGIES` is the list of them."""

from nmt.search.base import Hypothesis, Search
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy
from nmt.search.sampling import Sampling

STRATEGIES: dict[str, type[Greedy] | type[Beam] | type[Sampling]] = {"beam": Beam, "greedy": Greedy, "sample": Sampling}

__all__ = ["STRATEGIES", "Beam", "Greedy", "Hypothesis", "Sampling", "Search"]
