"""OpenNebula through pyone: the same client with a lean transport, and answers read without building objects.

Theory of operation
  pyone marshals the call, adds the session and maps error codes to exceptions; that is kept.  Two of its parts are replaced,
  because they cost more than OpenNebula itself (BEHAVIOUR.md: 112 ms for a pool of 1,000 VMs, of which the server needs 5):
  the transport (`requests` without a session: 0.8 ms of CPU a call) becomes http.client, and an answer that is XML stays text,
  from which lxml takes the few fields that are needed.

Rules
  1. A call has one deadline for connecting and answering.  pyone's own timeout is process-wide and not obeyed by its transport.
  2. A connection is used again only if the server kept it and it was idle for less than IDLE_MAX_S.  A request is never sent
     twice: whether the first one arrived is for the caller to find out (`Outcome.UNSURE`).
  3. One client belongs to one thread at a time.
  4. Nothing here logs an argument: a template holds the guest's token.
  5. What answers may be anything: a number is one that a fact can carry (`number`), texts have an end, and so have pools.  What
     cannot be read is an error of that look alone (`client_pool`).
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Container
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
import pyone
from lxml import etree
from pyone.server_xrpc import OneServerXRPC

from schemas.dimensions import DIMENSIONS
from schemas.size import Size
from services.executor.core.call_errors import Failure
from services.executor.core.calls import HostSight, Phase, Sample, Sight, phase_of
from services.executor.opennebula.deadline import Answer
from services.executor.opennebula.errors import Faulted, Unreachable, unreachable
from services.executor.opennebula.messages import in_words
from services.executor.opennebula.pools import Decode, PoolReader
from services.executor.opennebula.template import TAG

T = TypeVar("T")
IDLE_MAX_S: Final = 5.0  # below what servers keep an idle connection for (aiohttp 75 s, most proxies 15 s or more)
ANSWER_BYTES_MAX: Final = 512 << 20  # 100,000 hosts are about 750 MB; more than this is no answer
_CHUNK: Final = 1 << 20
_PARSER: Final[dict[str, Any]] = {"resolve_entities": False, "no_network": True, "huge_tree": True}
_EXCEPTIONS: Final[dict[int, type[Exception]]] = {
    0x0100: pyone.OneAuthenticationException,
    0x0200: pyone.OneAuthorizationException,
    0x0400: pyone.OneNoExistsException,
    0x0800: pyone.OneActionException,
    0x1000: pyone.OneApiException,
    0x2000: pyone.OneInternalException,
}
_ALL, _NEWEST, _OLDEST, _NOT_DONE = -2, -1, -1, -1  # one.vmpool.info: of all users, no range, not DONE
_HOST_USABLE: Final = (1, 2)  # MONITORING_MONITORED, MONITORED
_HOST_BAD: Final = {3: "error", 5: "error", 8: "offline"}
_HOST_APART: Final = (4, 7)  # DISABLED, MONITORING_DISABLED
_LAST_SAMPLES: Final = 0  # one.hostpool.monitoring: the newest of each host
_IDS, _STATES, _LCM_STATES = (
    etree.XPath(f"VM/{name}/text()", smart_strings=False) for name in ("ID", "STATE", "LCM_STATE")
)
_PLACED_IDS, _PLACES = (  # columns of those that have been on a host
    etree.XPath(f"VM[HISTORY_RECORDS/HISTORY]/{path}/text()", smart_strings=False)
    for path in ("ID", "HISTORY_RECORDS/HISTORY[last()]/HID")
)
_LABELS_NOT: Final = ("ERROR", "ZOMBIES", "TOTAL_ZOMBIES", "CPUSPEED")  # they change by themselves: no labels
NUMBER_MAX: Final = 1 << 40  # KiB: a petabyte of memory, and far beyond any id
LABEL_CHARS_MAX: Final = 200
LABELS_MAX: Final = 64


class _Transport:
    """HTTP for one thread.  What `xmlrpc.client.ServerProxy` needs of a transport is `request`."""

    def __init__(self, endpoint: str, timeout_s: float) -> None:
        self._url, self.timeout_s = urlsplit(endpoint), timeout_s
        self.decode: Decode = _decode
        self._connection: http.client.HTTPConnection | None = None
        self._used_at = 0.0

    def request(self, _host: str, handler: str, body: bytes, verbose: bool = False) -> tuple[list[Any]]:  # noqa: ARG002
        deadline = time.monotonic() + self.timeout_s
        try:
            data = self._exchange(handler, body, deadline)
        except (OSError, http.client.HTTPException, Unreachable) as error:
            self.close()
            raise error if isinstance(error, Unreachable) else unreachable(error) from error
        self._used_at = time.monotonic()
        return (self.decode(data),)

    def _exchange(self, handler: str, body: bytes, deadline: float) -> bytes:
        connection = self._open()
        connection.response_class = partial(Answer, deadline=deadline)  # type: ignore[assignment]
        connection.request("POST", handler, body, {"Content-Type": "text/xml"})
        response = connection.getresponse()
        chunks: list[bytes] = []
        size = 0
        while chunk := response.read1(_CHUNK):  # what has arrived: an answer that trickles has the same deadline
            size += len(chunk)
            if size > ANSWER_BYTES_MAX or time.monotonic() > deadline:
                raise TimeoutError("the answer is too long or too slow")
            chunks.append(chunk)
        response.read()  # read1 neither says that an answer is cut short nor lets go of the connection
        if response.status != http.client.OK:
            raise Unreachable(f"HTTP status {response.status} {response.reason}".strip(), Failure.HTTP)
        if response.will_close:
            self.close()
        return b"".join(chunks)

    def _open(self) -> http.client.HTTPConnection:
        if self._connection is not None and time.monotonic() - self._used_at > IDLE_MAX_S:
            self.close()
        if self._connection is None:
            host, port = self._url.hostname or "127.0.0.1", self._url.port
            if self._url.scheme == "https":
                context = ssl.create_default_context()
                self._connection = http.client.HTTPSConnection(host, port, timeout=self.timeout_s, context=context)
            else:
                self._connection = http.client.HTTPConnection(host, port, timeout=self.timeout_s)
        elif self._connection.sock is not None:
            self._connection.sock.settimeout(self.timeout_s)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _decode(data: bytes) -> list[Any]:
    """The three elements of an answer: success, value or message, error code.  Raises `Faulted` for a fault."""
    try:
        root = etree.fromstring(data, etree.XMLParser(**_PARSER))
    except etree.XMLSyntaxError as error:
        raise Unreachable(f"the answer is no XML: {error}") from error
    fault = root.find("fault")
    if fault is not None:
        raise _fault(fault)
    values = root.findall("params/param/value/array/data/value")
    if len(values) < 3:
        raise Unreachable("the answer is no XML-RPC answer of OpenNebula")
    return [_scalar(value) for value in values[:3]]


def _fault(fault: Any) -> Faulted:
    members = {m.findtext("name"): " ".join("".join(m.find("value").itertext()).split()) for m in fault.iter("member")}
    code = members.get("faultCode", "")
    return Faulted(
        f"fault {code}: {members.get('faultString', '')}", number(code) if code.lstrip("-").isdecimal() else 0
    )


def _scalar(value: Any) -> Any:
    if len(value) == 0:
        return value.text or ""
    kind = value[0]
    text = kind.text or ""
    if kind.tag in ("i4", "int", "i8"):
        return number(text)
    return text.strip() == "1" if kind.tag == "boolean" else text


class LeanServer(OneServerXRPC):  # type: ignore[misc]
    """pyone's client; answers that are XML come back as text.  Raises pyone's exceptions, and `Unreachable`."""

    def __init__(self, endpoint: str, session: str, timeout_s: float) -> None:
        super().__init__(endpoint, session)
        self.lean = _Transport(endpoint, timeout_s)
        self._ServerProxy__transport = self.lean  # the one place where a ServerProxy keeps it

    def _ServerProxy__request(self, methodname: str, params: tuple[Any, ...]) -> Any:
        ok, value, code = self._do_request("one." + methodname, self._cast_parms(params))
        if ok:
            return value
        raise _EXCEPTIONS.get(code, pyone.OneException)(value)


class OpenNebula:
    """The calls that the executor makes, typed.  One thread at a time; every method raises what `LeanServer` does."""

    def __init__(
        self,
        endpoint: str,
        session: str,
        timeout_s: float,
        read_timeout_s: float,
        allocate_timeout_s: float | None = None,
    ) -> None:
        """`allocate_timeout_s`: of an allocation; None: as of other calls that change something."""
        self.session = session
        self._one = LeanServer(endpoint, session, timeout_s)
        self._timeout_s, self._read_timeout_s = timeout_s, read_timeout_s
        self._allocate_timeout_s = timeout_s if allocate_timeout_s is None else allocate_timeout_s

    def allocate(self, template: str) -> int:
        """A VM on HOLD; returns its id (X1)."""
        self._one.lean.timeout_s = self._allocate_timeout_s
        return number(self._one.vm.allocate(template, True))

    def deploy(self, vm: int, one_host: int) -> None:
        """Run it there.  Enforced: OpenNebula checks the host's capacity once more."""
        self._acting().vm.deploy(vm, one_host, True, -1, "")

    def terminate(self, vm: int, hard: bool) -> None:
        self._acting().vm.action("terminate-hard" if hard else "terminate", vm)

    def stop(self, vm: int) -> None:
        """Save its memory, and give its host up."""
        self._acting().vm.action("stop", vm)

    def migrate(self, vm: int, one_host: int) -> None:
        """Move it there while it runs.  Enforced, as `deploy`."""
        self._acting().vm.migrate(vm, one_host, True, True, -1, 0)

    def host(self, one_host: int) -> HostSight:
        return host_sight(_root(self._reading().host.info(one_host)))

    def hosts(self, reader: PoolReader[HostSight] | None = None) -> list[HostSight]:
        """Every host.  `reader`: knows the answer before."""
        return self._pool(reader or host_reader(), lambda one: one.hostpool.info())

    def samples(self) -> dict[int, Sample]:
        """The newest sample of each host's monitoring, by id."""
        return host_samples(_root(self._reading().hostpool.monitoring(_LAST_SAMPLES)))

    def vms(self, reader: PoolReader[Sight] | None = None) -> list[Sight]:
        """Every VM that is not DONE, without tags: pools in short leave them out.  `reader`: knows the answer before."""
        return self._pool(reader or vm_reader(), lambda one: one.vmpool.info(_ALL, _NEWEST, _OLDEST, _NOT_DONE))

    def _pool(self, reader: PoolReader[T], ask: Callable[[LeanServer], Any]) -> list[T]:
        one = self._reading()
        one.lean.decode = reader.read
        try:
            found: list[T] = ask(one)
        finally:
            one.lean.decode = _decode
        return found

    def vms_named(self, vms: list[int], tags: bool = False) -> list[Sight]:
        """These VMs and their hosts, DONE ones included; those that are not there are left out."""
        return sights(_root(self._reading().vmpool.infoset(",".join(map(str, vms)), tags)), tags, places=True)

    def absent(self, vms: list[int]) -> list[Sight]:
        """Of VMs that a pool lacks, those that are there all the same; `hidden`: our user may not see them."""
        found: list[Sight] = []
        for vm in vms:
            pool = etree.Element("VM_POOL")
            try:
                pool.append(_root(self._reading().vm.info(vm)))
            except pyone.OneNoExistsException:
                continue
            except pyone.OneAuthorizationException:
                found.append(Sight(vm, Phase.UNKNOWN, hidden=True))
                continue
            found += sights(pool, places=True)
        return found

    def close(self) -> None:
        self._one.lean.close()

    def _acting(self) -> LeanServer:
        self._one.lean.timeout_s = self._timeout_s
        return self._one

    def _reading(self) -> LeanServer:
        self._one.lean.timeout_s = self._read_timeout_s
        return self._one


def vm_reader() -> PoolReader[Sight]:
    """For polls of the pool of VMs, one at a time."""
    return PoolReader("VM", _decode, lambda xml: sights(_root(xml)), lambda sight: sight.vm)


def host_reader() -> PoolReader[HostSight]:
    """For polls of the pool of hosts, one at a time."""
    return PoolReader("HOST", _decode, lambda xml: [host_sight(h) for h in _root(xml)], lambda sight: sight.one_id)


def _root(text: str | bytes) -> Any:
    try:
        return etree.fromstring(text.encode() if isinstance(text, str) else text, etree.XMLParser(**_PARSER))
    except etree.XMLSyntaxError as error:
        raise Unreachable(f"the pool is no XML: {error}") from error


def number(text: str | int | None) -> int:
    """Rule 5; of nothing -1.  Raises ValueError."""
    found = int(text or -1) if text != 0 else 0
    if not -NUMBER_MAX < found < NUMBER_MAX:
        raise ValueError("a number is out of range")
    return found


def _whole(text: str | None) -> int:
    """Of a number with a fraction; of nothing 0.  Raises ValueError, OverflowError."""
    return number(round(float(text or 0)))


def sights(pool: Any, tags: bool = False, places: bool = False) -> list[Sight]:
    """The VMs of a VM_POOL, if asked for with their tags and places.  Columns are read one after another inside libxml2: a
    Python object for each VM costs more."""
    columns: list[Any] = [_IDS(pool), _STATES(pool), _LCM_STATES(pool)]
    numbers = zip(*(map(number, column) for column in columns), strict=True)
    found = _tags(pool) if tags else {}
    placed: list[Any] = [_PLACED_IDS(pool), _PLACES(pool)] if places else [(), ()]
    there = dict(zip(map(number, placed[0]), map(number, placed[1]), strict=True))
    seen = [Sight(vm, phase_of(state, lcm), found.get(vm, ""), there.get(vm, -1)) for vm, state, lcm in numbers]
    failed = dict.fromkeys(sight.vm for sight in seen if sight.phase is Phase.FAILED)
    errors = _errors(pool, failed) if failed else {}
    return [msgspec.structs.replace(s, why=errors[s.vm]) if s.vm in errors else s for s in seen] if errors else seen


def _errors(pool: Any, failed: Container[int]) -> dict[int, str]:
    """Why VMs have failed, of those that say so: short answers have it as well."""
    told = ((number(vm.findtext("ID")), vm.findtext("USER_TEMPLATE/ERROR")) for vm in pool.iterchildren("VM"))
    return {vm: in_words(text) for vm, text in told if text and vm in failed}


def _tags(pool: Any) -> dict[int, str]:
    """PHOENIX_ID of those that have one."""
    tagged = ((vm.findtext("ID"), vm.findtext(f"USER_TEMPLATE/{TAG}")) for vm in pool.iterchildren("VM"))
    return {number(vm): tag for vm, tag in tagged if tag}


def host_samples(data: Any) -> dict[int, Sample]:
    """A MONITORING_DATA."""
    found = {}
    for sample in data.iterchildren("MONITORING"):
        at, used = number(sample.findtext("TIMESTAMP") or 0), _whole(sample.findtext("CAPACITY/USED_CPU"))
        found[number(sample.findtext("ID"))] = Sample(at, used, _whole(sample.findtext("CAPACITY/USED_MEMORY")))
    return found


def host_sight(host: Any) -> HostSight:
    """One HOST.  MAX_CPU and TOTAL_CPU are in percent of a core, MAX_MEM in KiB; MAX is what OpenNebula lets VMs have there:
    TOTAL without what the host's RESERVED attributes keep (negative: more than there is)."""
    find = host.findtext
    state = number(find("STATE") or 0)
    vms = host.find("VMS")
    return HostSight(
        name=find("NAME") or "",
        one_id=number(find("ID")),
        usable=state in _HOST_USABLE,
        bad=_HOST_BAD.get(state, ""),
        size=Size._make(number(dimension.capacity(host)) for dimension in DIMENSIONS),
        cluster=(find("CLUSTER") or "")[:LABEL_CHARS_MAX],
        labels=_labels(host.find("TEMPLATE")),
        vms=tuple(number(e.text) for e in vms) if vms is not None else (),
        apart="disabled" if state in _HOST_APART else "",
        max_cpu=max(0, number(find("HOST_SHARE/MAX_CPU") or 0)),
        asked=tuple(number(dimension.in_use(host)) for dimension in DIMENSIONS),
    )


def _labels(template: Any) -> dict[str, str]:
    """The host's plain attributes, in the order of their names; no more and no longer than a fact should carry."""
    if template is None:
        return {}
    elements = [e for e in template if isinstance(e.tag, str) and len(e.tag) <= LABEL_CHARS_MAX]  # no comments
    plain = {e.tag: (e.text or "") for e in elements if len(e) == 0 and e.tag not in _LABELS_NOT}
    return {name: plain[name][:LABEL_CHARS_MAX] for name in sorted(plain)[:LABELS_MAX]}
