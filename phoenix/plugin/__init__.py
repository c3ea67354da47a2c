"""What plug-ins import: the public interface of Phoenix Cloud to other people's packages, and nothing else of it.

| module | for |
|---|---|
| `phoenix.plugin` | the version, and how an experiment is registered |
| `phoenix.plugin.policies` | orders, victim orders and scaling rules: pure functions that a scheduler calls |
| `phoenix.plugin.simulation` | experiments of `phoenix simulate`: the simulator, its inputs, reports, searches and plots |

They are separate because a scheduler that loads an order should not load the simulator, and `phoenix simulate --help` neither.

The promise
  1. A module that an entry point names states the version that it was written for: `API = 1`, as a number of its own, not the
     one imported from here.  Another version, or none, is refused with a sentence that says both.
  2. Within a version, names in `__all__` of these modules, their parameters, fields and meaning stay; names, fields with a
     default and keyword parameters with a default may be added.
  3. A change that breaks a plug-in is a new version.  The changelog says what to do; a plug-in is then installed in its own
     new version, or the cloud stays at its old one.
  4. Everything else in this distribution may change at any time.
"""

from phoenix.simulate.experiments import Experiment
from services.runtime.plugins import API

__all__ = ["API", "Experiment"]
