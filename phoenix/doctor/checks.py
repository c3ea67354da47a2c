"""What follows from what an OpenNebula says about itself.  Pure: an answer and what the cloud wants in, findings out.

Rules
  1. `fail`: VMs of this cloud cannot run like this.  `warn`: they can, but slower, on fewer hosts, or with a named risk.
  2. What to do names the file, the setting or the command.
  3. An attribute that is not there is no finding: other versions may lack it.

Numbers and their sources: docs/howto/opennebula-site.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from phoenix.doctor.endpoint import is_loopback
from phoenix.doctor.findings import Finding, fail, ok, warn
from phoenix.doctor.requirements import REAL, Wanted
from schemas.dimensions import spoken
from schemas.size import Size, total
from schemas.units import iso, span
from services.executor.core.host_health import is_ours
from services.executor.opennebula.client import host_sight
from services.executor.opennebula.template import TemplateError, Templates

KNOWN: Final = re.compile(r"7\.\d")
USABLE: Final = (1, 2)  # MONITORING_MONITORED, MONITORED
HOST_STATES: Final = {0: "init", 3: "error", 4: "disabled", 5: "error", 6: "init", 7: "init", 8: "offline"}
SYSTEM, IMAGE = 1, 0  # TYPE of a datastore
ENABLED: Final = "0"
SPACE_WARN_MB, SPACE_FAIL_MB = 10 * 1024, 1024  # a small image and a few suspended VMs; not even one image
VMS_HERE: Final = "each VM's disks are here, and the memory of suspended ones"
SPARE_CONNECTIONS: Final = 4  # for people, Sunstone and monitoring beside our calls
QUOTAS: Final = (
    *(("VMS", ""), ("RUNNING_VMS", ""), ("CPU", " cores"), ("RUNNING_CPU", " cores")),
    *(("MEMORY", " MiB"), ("RUNNING_MEMORY", " MiB"), ("SYSTEM_DISK_SIZE", " MiB")),
)
IMAGE_USABLE: Final = ("1", "2")  # READY, USED
IMAGE_WAITS: Final = ("4", "10", "11")  # LOCKED, also with VMs that wait for it
IMAGE_STATES: Final = {"0": "INIT", "3": "DISABLED", "5": "ERROR", "6": "CLONE", "7": "DELETE", "8": "USED_PERS"}
TOKEN_SOON_S: Final = 7 * 86_400.0  # a person who is away for a week


def version(told: str) -> list[Finding]:
    if KNOWN.match(told):
        return [ok("version", f"OpenNebula {told}")]
    advice = "7.x is what was recorded and tested; with others watch the first jobs, and the executor's log"
    return [warn("version", f"OpenNebula {told}", advice)]


# ------------------------------------------------------------------------------------------------------------------ rights


def rights(user: Any, rules: Any | None) -> list[Finding]:
    """`user`: one.user.info -1.  `rules`: one.acl.info, None if it is denied."""
    number, name = user.findtext("ID") or "", user.findtext("NAME") or ""
    groups = [x.text or "" for x in user.findall("GROUPS/ID")]
    if "0" in groups:
        return [ok("rights", f"{name} is in the group oneadmin, which may do everything")]
    if rules is None:
        advice = "try with --dry-run-vm: it allocates, and asks for a deployment that cannot happen"
        return [warn("rights", f"{name} is not in the group oneadmin, and may not read the access rules", advice)]
    texts = [x.text or "" for x in rules.findall("ACL/STRING")]
    needed = (("CREATE", "VM"), ("ADMIN", "VM"), ("MANAGE", "HOST"), ("USE", "HOST"), ("USE", "DATASTORE"))
    lacking = [(right, kind) for right, kind in needed if not _granted(texts, number, groups, right, kind)]
    if not lacking:
        return [
            ok("rights", f"rules give {name} what the cloud needs of VMs, hosts and datastores"),
            *_sees(name, number, groups, texts),
        ]
    found = f"no rule lets {name} " + ", ".join(f"{right} {kind}" for right, kind in lacking)
    commands = "; ".join(f"oneacl create '#{number} {kind}/* {right}'" for right, kind in lacking)
    return [fail("rights", found, f"{commands}   (or a user of the group oneadmin; docs/howto/opennebula-site.md)")]


def _sees(name: str, number: str, groups: list[str], rules: list[str]) -> list[Finding]:
    """Whose VMs are on its hosts."""
    if _granted(rules, number, groups, "USE", "VM", every=True):
        return [ok("rights", f"rules let {name} see whose VMs are on its hosts")]
    found = f"no rule lets {name} USE VM/*, so VMs of other users are seen only as the part of a host that they take"
    advice = f"oneacl create '#{number} VM/* USE', if others have VMs on the same hosts: what they take is known at once then"
    return [warn("rights", found, advice)]


def _granted(rules: list[str], user: str, groups: list[str], right: str, kind: str, *, every: bool = False) -> bool:
    """True if some rule gives the right on some objects of this kind, or on `every` one: on which ones is the dry run's to find
    out."""
    for rule in rules:
        who, resources, given = [*rule.split(), "", "", ""][:3]
        mine = who in ("*", f"#{user}") or (who[:1] == "@" and who[1:] in groups)
        kinds, _, which = resources.partition("/")
        if mine and kind in kinds.split("+") and right in given.split("+") and (which == "*" or not every):
            return True
    return False


# ------------------------------------------------------------------------------------------------------------------- hosts


def hosts(pool: Any, wanted: Wanted) -> list[Finding]:
    found = pool.findall("HOST")
    if not found:
        advice = "add hosts (onehost create), or let this user USE them: oneacl create '#UID HOST/* USE+MANAGE'"
        return [fail("hosts", "no host is visible", advice)]
    every = len(found)
    found = [host for host in found if is_ours(host_sight(host), wanted.rules)]
    if not found:
        advice = "[hosts] clusters and use, against onecluster list and the attributes of onehost show HOST"
        return [fail("hosts", f"[hosts] of the configuration lets in none of {every} hosts", advice)]
    states = Counter(HOST_STATES.get(int(host.findtext("STATE") or 0), "usable") for host in found)
    usable = usable_hosts(pool, wanted)
    told = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    if not usable:
        return [
            fail("hosts", f"none of {len(found)} hosts is usable: {told}", "onehost show HOST; onehost enable HOST")
        ]
    size = total(host_sight(host).size for host in usable)
    clusters = sorted({host.findtext("CLUSTER") or "-" for host in usable})
    says = f"{told}: {', '.join(_amounts(size))}, in cluster {', '.join(clusters)}"
    says += f"; {every - len(found)} more are left out by [hosts]" if every > len(found) else ""
    idle = len(usable) < len(found)
    head = warn("hosts", says, "onehost show HOST says why; no job runs there meanwhile") if idle else ok("hosts", says)
    return [head, *_capacity(usable, wanted), *_drivers(usable, wanted)]


def usable_hosts(pool: Any, wanted: Wanted) -> list[Any]:
    """Of one.hostpool.info, those on which the cloud would start VMs."""
    found = [host for host in pool.findall("HOST") if int(host.findtext("STATE") or 0) in USABLE]
    return [host for host in found if is_ours(host_sight(host), wanted.rules)]


def roomiest(pool: Any, wanted: Wanted) -> int | None:
    """The id of a usable host with as much free as there is; of those with the configured hypervisor's driver, if there are
    any."""
    usable = usable_hosts(pool, wanted)
    able = [host for host in usable if host.findtext("VM_MAD") == wanted.hypervisor] or usable
    return min(((-_free(host), int(host.findtext("ID") or -1)) for host in able), default=(0.0, None))[1]


def _free(host: Any) -> float:
    """Cores or GiB, whichever is less."""
    cores = (_number(host, "MAX_CPU") - _number(host, "CPU_USAGE")) / 100
    return min(cores, (_number(host, "MAX_MEM") - _number(host, "MEM_USAGE")) / (1 << 20))


def _amounts(size: Size) -> Iterator[str]:
    """Of all hosts together; memory in GiB."""
    for dimension, number in spoken(size):
        yield f"{number // 1024} GiB" if dimension.field == "memory_mb" else dimension.amount(number)


def _capacity(usable: list[Any], wanted: Wanted) -> list[Finding]:
    found = []
    more = [x.findtext("NAME") for x in usable if _number(x, "MAX_CPU") > _number(x, "TOTAL_CPU") > 0]
    if wanted.rules.cpu_overcommit > 1.0 and not more:
        says = "[hosts] cpu_overcommit asks for more cores than any host offers"
        found.append(warn("capacity", says, "a negative RESERVED_CPU on those hosts (docs/reference/hosts.md)"))
    if more and wanted.rules.cpu_overcommit <= 1.0:
        says = f"{_some(more)} offers more cores than it has (RESERVED_CPU)"
        found.append(warn("capacity", says, "RESERVED_CPU at 0 or above; less is for [hosts] cpu_overcommit alone"))
    none = [x.findtext("NAME") for x in usable if _number(x, "MAX_CPU") < 100 or _number(x, "MAX_MEM") < 1024]
    if none:
        says = f"{_some(none)} offers no whole core or no memory"
        found.append(warn("capacity", says, "look at RESERVED_CPU and RESERVED_MEM of the host and of its cluster"))
    thin = [x.findtext("NAME") for x in usable if 0 < _number(x, "MAX_MEM") == _number(x, "TOTAL_MEM")]
    if thin and wanted.hypervisor in REAL:
        says = f"{_some(thin)} keeps no memory for its own system (RESERVED_MEM)"
        found.append(warn("capacity", says, "set RESERVED_MEM to 1 GiB or a tenth, and RESERVED_CPU to 100 or so"))
    return found


def _number(host: Any, name: str) -> int:
    return int(host.findtext(f"HOST_SHARE/{name}") or 0)


def _some(names: list[str | None]) -> str:
    shown = ", ".join(sorted(name or "?" for name in names)[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _drivers(usable: list[Any], wanted: Wanted) -> list[Finding]:
    drivers = Counter(host.findtext("VM_MAD") or "?" for host in usable)
    told = ", ".join(f"{name} on {count}" for name, count in sorted(drivers.items()))
    if not wanted.hypervisor:
        advice = (
            "say which with --hypervisor, or [opennebula] hypervisor: what can be done with running VMs depends on it"
        )
        return [warn("hypervisor", f"drivers: {told}", advice)]
    others = sorted(name for name in drivers if name != wanted.hypervisor)
    if wanted.hypervisor == "process" and set(drivers) <= {
        "dummy",
        "process",
    }:  # the embedded server's name for its own
        others = []
    if not others:
        return [ok("hypervisor", f"drivers: {told}")]
    advice = (
        f"[opennebula] hypervisor says {wanted.hypervisor}; keep the others in a cluster that this user may not use"
    )
    return [(fail if wanted.hypervisor not in drivers else warn)("hypervisor", f"drivers: {told}", advice)]


# -------------------------------------------------------------------------------------------------------------- datastores


def datastores(pool: Any, hosts: Any | None = None, wanted: Wanted | None = None) -> list[Finding]:
    """`pool`: one.datastorepool.info; `hosts`: one.hostpool.info, since the space of some drivers is the hosts'."""
    found: list[Finding] = []
    where = [] if hosts is None else usable_hosts(hosts, wanted or Wanted())
    for kind, name in ((SYSTEM, "system"), (IMAGE, "image")):
        every = [x for x in pool.findall("DATASTORE") if x.findtext("TYPE") == str(kind)]
        usable = [x for x in every if (x.findtext("STATE") or ENABLED) == ENABLED]
        if not usable:
            says = f"{len(every)} {name} datastores, none enabled" if every else f"no {name} datastore is visible"
            advice = f"onedatastore create, or enable; and let this user USE it (TYPE = {name.upper()}_DS)"
            found.append(fail("datastores", says, advice))
        found += [_space(name, x, where, wanted) for x in usable]
    return found


def _space(kind: str, store: Any, hosts: list[Any], wanted: Wanted | None) -> Finding:
    if kind == "system" and int(store.findtext("TOTAL_MB") or 0) == 0:
        return _on_hosts(store, hosts, wanted)
    free, driver = int(store.findtext("FREE_MB") or 0), store.findtext("TM_MAD") or "?"
    total = int(store.findtext("TOTAL_MB") or 0)
    says = f"{kind} datastore {store.findtext('NAME')} ({driver}): {free // 1024} of {total // 1024} GiB free"
    if kind == "system" and driver == "ssh":
        says += "; moving a VM copies its disks"
    if free >= SPACE_WARN_MB:
        return ok("datastores", says)
    advice = f"make room: {VMS_HERE if kind == 'system' else 'images are copied here'}"
    if total == 0:
        return warn(
            "datastores", f"{says}: its size is not known", "onedatastore show; it is monitored each few minutes"
        )
    return (fail if free < SPACE_FAIL_MB else warn)("datastores", says, advice)


def _on_hosts(store: Any, hosts: list[Any], wanted: Wanted | None) -> Finding:
    """A system datastore without a size of its own: VMs' disks are on each host, in its directory (TM_MAD ssh and alike)."""
    number, clusters = store.findtext("ID"), [x.text for x in store.findall("CLUSTERS/ID")]
    driver = store.findtext("TM_MAD") or "?"
    says = f"system datastore {store.findtext('NAME')} ({driver}) has its space on each host"
    mine = [x for x in hosts if not clusters or x.findtext("CLUSTER_ID") in clusters]
    if not mine:
        return ok("datastores", f"{says}, and no usable host is in its clusters")
    free = {x.findtext("NAME") or "?": _disk(x, number) for x in mine}
    unknown = [name for name, mb in free.items() if mb is None]
    if unknown:
        told = f"{says}; {_some(list(unknown))} does not report it"
        is_real = wanted is not None and wanted.hypervisor in REAL
        advice = "onehost show HOST (DATASTORES); the probe of the host's monitoring reports it within minutes"
        return warn("datastores", told, advice) if is_real else ok("datastores", told)
    known = {name: mb for name, mb in free.items() if mb is not None}
    small = [name for name, mb in known.items() if mb < SPACE_WARN_MB]
    least = min(known, key=lambda name: (known[name], name))
    says += f": {known[least] // 1024} GiB free on {least}, the least; moving a VM copies its disks"
    if not small:
        return ok("datastores", says)
    full = all(mb < SPACE_FAIL_MB for mb in known.values())
    where = _some(list(small))
    return (fail if full else warn)("datastores", f"{says}; little on {where}", f"make room on them: {VMS_HERE}")


def _disk(host: Any, datastore: str | None) -> int | None:
    """MiB that are free there for the datastore; None: not reported."""
    for one in host.findall("HOST_SHARE/DATASTORES/DS"):
        if one.findtext("ID") == datastore:
            return int(one.findtext("FREE_MB") or 0)
    if int(host.findtext("HOST_SHARE/DATASTORES/MAX_DISK") or 0) == 0:
        return None
    return int(host.findtext("HOST_SHARE/DATASTORES/FREE_DISK") or 0)


# ----------------------------------------------------------------------------------------------------------- configuration


def configuration(tree: Any, wanted: Wanted) -> list[Finding]:
    """`tree`: one.system.config."""
    return [*_connections(tree, wanted), *_scheduler(tree)]


def _connections(tree: Any, wanted: Wanted) -> list[Finding]:
    most = int(tree.findtext("MAX_CONN") or 0)
    if not most:
        return []
    says = f"oned takes {most} connections at once (MAX_CONN), the cloud uses {wanted.concurrency}"
    if wanted.concurrency >= most:
        advice = f"set [opennebula] concurrency to 8, or MAX_CONN of oned.conf to {wanted.concurrency + 2 * SPARE_CONNECTIONS}"
        return [fail("connections", says, advice)]
    if wanted.concurrency + SPARE_CONNECTIONS > most:
        advice = "raise MAX_CONN and MAX_CONN_BACKLOG in oned.conf to 64, or lower [opennebula] concurrency"
        return [warn("connections", says, advice)]
    return [ok("connections", says)]


def _scheduler(tree: Any) -> list[Finding]:
    arguments = " ".join(x.text or "" for x in tree.findall("SCHED_MAD/ARGUMENTS")).split()
    named = {arguments[i + 1] for i, word in enumerate(arguments[:-1]) if word in ("-p", "-o")}
    active = sorted(name for part in named for name in part.split(",") if name != "dummy")
    if not active:
        return [ok("scheduler", "oned has no scheduler of its own at work")]
    says = f"oned's own scheduler is at work ({', '.join(active)})"
    advice = (
        "the cloud's VMs wait on HOLD, which it leaves alone; if nothing else uses this OpenNebula, set the drivers of "
        "SCHED_MAD to dummy in oned.conf"
    )
    return [warn("scheduler", says, advice)]


def publisher(tree: Any) -> tuple[str, int]:
    """Where the hook manager publishes, by oned.conf: address (empty: not said) and port."""
    words = (tree.findtext("HM_MAD/ARGUMENTS") or "").split()
    options = dict(pairwise(words))
    port = options.get("-p", "")
    return options.get("-b", ""), int(port) if port.isdigit() else 0


# ------------------------------------------------------------------------------------------------------------------ quotas


def quotas(owner: Any, what: str) -> list[Finding]:
    """Limits on VMs of a USER or GROUP."""
    vm = owner.find("VM_QUOTA/VM")
    if vm is None:
        return [ok("quotas", f"no limit on the {what}'s VMs")]
    found = []
    for name, unit in QUOTAS:
        limit, used = float(vm.findtext(name) or -1), float(vm.findtext(f"{name}_USED") or 0)
        if limit >= 0:
            says = f"the {what}'s limit on {name} is {limit:g}{unit}, {used:g} used"
            advice = f"one{what} quota: what is beyond it waits, although hosts may be free"
            found.append((fail if used >= limit else warn)("quotas", says, advice))
    return found or [ok("quotas", f"no limit on the {what}'s VMs")]


# ---------------------------------------------------------------------------------------------------------------- template


def token(user: Any, secret: str, now: float) -> list[Finding]:
    """Until when the login holds.  `user`: one.user.info -1; `secret`: the password or token that was used."""
    for one in user.findall("LOGIN_TOKEN"):
        until = float(one.findtext("EXPIRATION_TIME") or -1)
        if one.findtext("TOKEN") != secret or until < 0:
            continue
        says = f"the login is a token that ends at {iso(until)}, in {span(max(0.0, until - now))}"
        if until - now >= TOKEN_SOON_S:
            return [ok("credentials", says)]
        advice = (
            f"oneuser token-create {user.findtext('NAME')} --time -1, into [opennebula] auth_file; it is read at once"
        )
        return [warn("credentials", f"{says}: then nothing starts or ends", advice)]
    return []


def template(wanted: Wanted, images: Any | None, networks: Any | None = None, user: str = "") -> list[Finding]:
    """[opennebula.template], before anything is allocated with it.  `images`: one.imagepool.info; `networks`: one.vnpool.info;
    `user`: who asks, whose images and networks are meant where no owner is named."""
    if wanted.hypervisor and wanted.hypervisor not in REAL:
        return []
    try:
        Templates(b"doctor", wanted.door or "http://127.0.0.1", wanted.template)
    except TemplateError as error:
        return [fail("template", str(error), "change [opennebula.template] in the configuration file")]
    names = {str(name).upper(): value for name, value in wanted.template.items()}
    found = [*_door(wanted), *_disks(names, images, user), *_nics(names, networks, user)]
    if "NIC" not in names:
        found.append(fail("template", "no NIC: a guest could not reach the door", "add NIC to [opennebula.template]"))
    context = names.get("CONTEXT")
    if not isinstance(context, dict) or str(context.get("NETWORK", "")).upper() != "YES":
        advice = 'CONTEXT = { NETWORK = "YES" } in [opennebula.template]: else the guest has no address of its NIC'
        found.append(warn("template", "CONTEXT does not ask for the network's configuration", advice))
    return found or [ok("template", "disk, network and context are there")]


def _door(wanted: Wanted) -> list[Finding]:
    if wanted.door and is_loopback(wanted.door):
        advice = "[http] listen on an address that VMs reach, and url if it is another"
        return [fail("door", f"guests are to call {wanted.door}, which no other machine reaches", advice)]
    return []


def _disks(names: dict[str, Any], images: Any | None, user: str) -> list[Finding]:
    disks = names.get("DISK", [])
    disks = disks if isinstance(disks, list) else [disks]
    if not disks:
        return [fail("template", "no DISK: there is nothing to boot", "add DISK to [opennebula.template]")]
    if images is None:
        return []
    found = []
    for disk in disks:
        told = {str(k).upper(): str(v) for k, v in disk.items()} if isinstance(disk, dict) else {}
        wish = told.get("IMAGE_ID") or told.get("IMAGE")
        if wish is None:
            continue
        match, problem = _meant(images.findall("IMAGE"), told, "IMAGE", user)
        found += problem if match is None else _image(wish, match)
    return found


def _image(wish: str, image: Any) -> list[Finding]:
    state = image.findtext("STATE") or ""
    if state in IMAGE_USABLE:
        return []
    if state in IMAGE_WAITS:
        says = f"image {wish} is LOCKED, still being copied: a VM waits for it (CLONING), no longer than boot_timeout_s"
        return [fail("template", says, f"oneimage show {wish}; again when it is READY")]
    says = f"image {wish} is {IMAGE_STATES.get(state, f'in state {state}')}: VMs with it are refused"
    advice = {
        "3": f"oneimage enable {wish}",
        "5": f"oneimage show {wish} says why; delete it, and create it again",
        "8": f"oneimage nonpersistent {wish}: one VM alone has a persistent image",
    }.get(state, f"oneimage show {wish}; wait until it is READY")
    return [fail("template", says, advice)]


def _nics(names: dict[str, Any], networks: Any | None, user: str) -> list[Finding]:
    nics = names.get("NIC", [])
    found = []
    if networks is None:
        return []
    for nic in nics if isinstance(nics, list) else [nics]:
        told = {str(k).upper(): str(v) for k, v in nic.items()} if isinstance(nic, dict) else {}
        if "NETWORK" in told or "NETWORK_ID" in told:
            found += _meant(networks.findall("VNET"), told, "NETWORK", user)[1]
    return found


def _meant(things: list[Any], told: dict[str, str], kind: str, user: str) -> tuple[Any | None, list[Finding]]:
    """What an attribute names, as OpenNebula looks it up: by number, or by name among its owner's, who is this user if no other
    is named; or what is wrong."""
    number, name, what = told.get(f"{kind}_ID"), told.get(kind, ""), kind.lower()
    uname = told.get(f"{kind}_UNAME") or user
    command = "oneimage list" if kind == "IMAGE" else "onevnet list"
    match = [x for x in things if number in (x.findtext("ID"),) or (number is None and x.findtext("NAME") == name)]
    if not match:
        advice = f"{command}; the name must be that of one that this user may USE"
        return None, [fail("template", f"there is no {what} {number or name}", advice)]
    owners = [x.findtext("UNAME") or "" for x in match]
    if number is not None or f"{kind}_UID" in told or not uname or not any(owners) or uname in owners:
        return next((x for x in match if x.findtext("UNAME") == uname), match[0]), []
    advice = f'{kind}_UNAME = "{owners[0]}" beside {kind} = "{name}" in [opennebula.template]'
    return None, [fail("template", f"{uname} has no {what} {name}; {owners[0]} has one", advice)]
