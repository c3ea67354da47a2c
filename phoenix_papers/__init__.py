"""The papers' replicas: SVMSched, InterGrid, Thiao and Phoenix Cloud, as a plug-in package of the same distribution.

What is here could be anybody's: it enters by entry points (`pyproject.toml`), imports of the product what `phoenix.plugin`
promises, and nothing of the product imports it.  A test holds it to that (`tests/unit/test_plugin_interface.py`).

What stays with the product, though a paper is behind it: the order `leases`, since the lease commands, admission's answer to
them and the provisioner's demand go by its slots, and with it the costs that `leases.victims` weighs; and the settings of
`svmsched` (`services`, `short_s`, `w_cpu`, `w_mem`), since admission refuses a job that its service's share could never hold,
and usage is shown by service.

| package | replica of |
|---|---|
| `phoenix_cloud` | Phoenix Cloud: one shared cluster against two dedicated ones; also what `phoenix tune` searches |
| `autoscale` | Phoenix Cloud's web scaling rule, against target tracking |
| `policies` | none: every order with every order of victims, on four logs |
| `svmsched` | R. Chakode's thesis: services that share a cluster; the order of that name |
| `intergrid` | Salehi, Toosi and Buyya: leases among external ones that make way; its three victim orders |
| `thiao` | Thiao's idle cores: VMs beside a host's own job |
"""

from typing import Final

from phoenix.plugin import Experiment

API: Final = 1

PHOENIX_CLOUD: Final = Experiment(
    "the paper's comparison: one shared cluster against two dedicated ones",
    "phoenix_papers.phoenix_cloud.experiment",
    "phoenix_papers.phoenix_cloud.bench",
)
SVMSCHED: Final = Experiment(
    "services that share a cluster: static parts against short jobs that borrow", "phoenix_papers.svmsched.experiment"
)
POLICIES: Final = Experiment(
    "every order with every order of victims, on four logs", "phoenix_papers.policies.experiment"
)
INTERGRID: Final = Experiment(
    "leases with time slots among external ones that make way for them, by whom and at what cost",
    "phoenix_papers.intergrid.experiment",
)
THIAO: Final = Experiment(
    "whole-node jobs of one thread: what VMs beside a host's own job are worth", "phoenix_papers.thiao.experiment"
)
AUTOSCALE: Final = Experiment(
    "how web scaling rules follow a day-and-night load", "phoenix_papers.autoscale.experiment"
)
