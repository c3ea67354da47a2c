"""What a policy imports: the types of orders, victim orders and scaling rules, what they are shown, and what they answer.

| | |
|---|---|
| an order | `Order`, of a function from a `Situation` to a `Plan` of `Start`s; `Queue` in `Lane`s, `Room`, `Forecast` |
| … with best-effort | `PreemptibleCapacity`: hosts, and what is preempted; `Gap`: room that is kept for the head; `Shares` |
| victims | a function from `HostLoad`s and `Candidate`s to a `Choice`; `choose_by` with a price is all it takes |
| a scaling rule | `Rule`, of `follow` and `wanted` on a `Memory` of `Sample`s |
| all of them | reasons, as `because.ByPolicy(policy=…, details={…})`; `settings` reads a policy's own options |

`docs/howto/plugins.md` says what a policy may do, `phoenix policies check NAME` tries it.
"""

from schemas import reasons as because
from schemas.config import BatchPolicy, Option, WebPolicy
from schemas.options import read as settings
from schemas.reasons import Reason
from schemas.size import NOTHING, Size, total
from services.domain.sharing.service_share import Shares, percent
from services.scheduler.core.policies.order import (
    Order,
    Plan,
    Reserved,
    Situation,
    Start,
    Wait,
    fitting_lanes,
    push_next,
)
from services.scheduler.core.policies.preemptible_capacity import PreemptibleCapacity, newest_of
from services.scheduler.core.policies.reservation import Gap, gap_for
from services.scheduler.core.policies.scale import Heard, Memory, Rule, Track
from services.scheduler.core.policies.victims import (
    Candidate,
    Choice,
    HostLoad,
    choose_by,
    newest_first,
    oldest_first,
)
from services.scheduler.core.state.forecast import Ending, Forecast
from services.scheduler.core.state.load import Sample
from services.scheduler.core.state.queue import Lane, LaneKey, Queue
from services.scheduler.core.state.room import Free, Room
from services.scheduler.core.state.shape import Place, Shape

__all__ = [
    "NOTHING",
    "BatchPolicy",
    "Candidate",
    "Choice",
    "Ending",
    "Forecast",
    "Free",
    "Gap",
    "Heard",
    "HostLoad",
    "Lane",
    "LaneKey",
    "Memory",
    "Option",
    "Order",
    "Place",
    "Plan",
    "PreemptibleCapacity",
    "Queue",
    "Reason",
    "Reserved",
    "Room",
    "Rule",
    "Sample",
    "Shape",
    "Shares",
    "Situation",
    "Size",
    "Start",
    "Track",
    "Wait",
    "WebPolicy",
    "because",
    "choose_by",
    "fitting_lanes",
    "gap_for",
    "newest_first",
    "newest_of",
    "oldest_first",
    "percent",
    "push_next",
    "settings",
    "total",
]
