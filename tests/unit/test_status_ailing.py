"""What a service says that somebody should look at reaches the supervisor, and `phoenix status`."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry

from phoenix.cli import status
from phoenix.local.supervisor_child import Child, Spec
from phoenix.local.supervisor_probe import Leads
from services.runtime.http.guard import Guard
from services.runtime.log import get_log
from services.runtime.metrics import MetricsListener

SENTENCE = (
    "OpenNebula at http://one:2633/RPC2 refuses the login of oneadmin: check [opennebula] auth_file /etc/one_auth"
)


async def test_the_supervisor_hears_what_a_service_says_and_forgets_it_with_the_next_answer() -> None:
    health: dict[str, object] = {"caught_up": True, "leader": True, "ailing": [SENTENCE]}
    listener = MetricsListener(CollectorRegistry(), lambda: health, Guard(get_log(service="test")))
    port = await listener.start("127.0.0.1", 0)
    try:
        probe = Leads("127.0.0.1", port)
        child = Child(Spec(name="executor", argv=("true",), probe=probe), Path("executor.log"), lambda _: None)
        assert await probe()
        assert probe.ailing == [SENTENCE]
        assert child.ailing == [], "it is not known to be well"
        child.health = "ok"
        assert child.ailing == [SENTENCE]
        health["ailing"] = []
        assert await probe()
        assert child.ailing == []
        health["leader"] = False
        assert not await probe()
    finally:
        await listener.stop()
    assert not await probe()
    assert probe.ailing == []


def test_status_ends_with_the_sentences() -> None:
    process = {"name": "executor", "pid": 7, "health": "ok", "restarts": 0, "since": None, "url": None}
    told = {
        "processes": [{**process, "ailing": [SENTENCE]}, {**process, "name": "monitor", "ailing": []}],
        "hosts": 4,
        "cores": 4,
        "memory_mb": 1024,
        "hypervisor": "dummy",
        "isolation": "uid",
        "isolation_reason": "",
        "job_network": None,
        "opennebula": "embedded",
        "balancers": {},
        "agents": {},
    }
    places = ("cloud", "data", "nats_url", "http_url", "monitor_url", "opennebula_url", "opennebula_auth_file")
    text = status.render(told | dict.fromkeys((*places, "credentials_dir"), "x"))
    assert text.endswith(f"\n\nexecutor: {SENTENCE}")
