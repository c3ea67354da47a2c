"""one.image.* and one.imagepool.*, and the marketplaces that OpenNebula comes with.

An image is LOCKED until its file is in place (step `image` of the steering), then READY; USED while a VM has it.
"""

from __future__ import annotations

from phoenix.local.driver import DriverError
from phoenix.local.opennebula.auth import CREATE, MANAGE, USE, Need, need
from phoenix.local.opennebula.calls import Call, method
from phoenix.local.opennebula.errors import ACTION, ALLOCATE, INTERNAL, OneError
from phoenix.local.opennebula.methods_vm import parse_template
from phoenix.local.opennebula.methods_vmpool import filtered, paged
from phoenix.local.opennebula.model import Datastore, Image, Owned
from phoenix.local.opennebula.render import image as render_image
from phoenix.local.opennebula.render import owner, permissions
from phoenix.local.opennebula.states import ImageState
from phoenix.local.opennebula.templates import Template, cdata
from phoenix.local.opennebula.xmlrpc import escape

_TYPES = {"OS": 0, "CDROM": 1, "DATABLOCK": 2}
_NOT_KEPT = ("NAME", "TYPE", "PATH", "SIZE", "PERSISTENT", "FORMAT", "SOURCE")

# What the dummy datastore says of every file it is asked about.
DUMMY_SIZE_MB = 1024
DUMMY_SOURCE, DUMMY_FORMAT = "dummy_path", "dummy_format"


def _image_for(call: Call, image_id: int, right: str) -> Image:
    image = call.store.image(image_id)
    call.one.auth.require(call.user, need(right, "IMAGE", image))
    return image


def _size_mb(template: Template, datastore: Datastore) -> int:
    given = template.get("SIZE")
    if given.isdigit():
        size_mb = int(given)
    elif template.get("PATH") and not given:
        size_mb = DUMMY_SIZE_MB
    else:
        raise OneError(INTERNAL, "Cannot parse image SIZE: Wrong number or missing SIZE attribute.")
    if size_mb > datastore.free_mb:
        raise OneError(ACTION, "Not enough space in datastore")
    return size_mb


@method("one.image.allocate", "si?b")
def allocate(call: Call, text_: str, datastore_id: int, check_capacity: bool = True) -> int:  # noqa: ARG001 (always checked)
    """A new image in a datastore."""
    template = parse_template(text_, INTERNAL)
    datastore = call.store.datastore(datastore_id)
    call.one.auth.require(call.user, Need(CREATE, "IMAGE"), need(USE, "DATASTORE", datastore))
    prefix = "Error allocating a new image."
    if datastore.type == 1:
        raise OneError(ALLOCATE, f"{prefix} New images can only be allocated in a files or image datastore.")
    size_mb = _size_mb(template, datastore)
    name = template.get("NAME")
    for other in call.store.images.values():
        if other.name == name and other.uid == call.user.id:
            raise OneError(ALLOCATE, f"{prefix} NAME is already taken by IMAGE {other.id}.")
    kind = _TYPES.get(template.get("TYPE", "OS").upper(), 0)
    image = Image(
        id=call.store.new_id("images"),
        name=name,
        uid=call.user.id,
        gid=call.user.groups[0],
        uname=call.user.name,
        gname=call.store.groups[call.user.groups[0]].name,
        template=Template({"DEV_PREFIX": ["sd"]}).merged(template.without(_NOT_KEPT)),
        type=kind,
        size_mb=size_mb,
        path=template.get("PATH"),
        format=template.get("FORMAT") or ("raw" if kind == _TYPES["DATABLOCK"] else ""),
        datastore_id=datastore.id,
        regtime=call.one.clock.second(),
        persistent=int(template.get("PERSISTENT").upper() == "YES"),
    )
    call.store.images[image.id] = image
    datastore.images[image.id] = None
    call.one.machine.behind(_fill(call, image))
    return image.id


async def _fill(call: Call, image: Image) -> None:
    try:
        if call.one.steering is not None:
            await call.one.steering.gate("image", -1, image.id)
    except DriverError:
        _set_state(call, image, ImageState.ERROR)
        return
    image.source, image.format = DUMMY_SOURCE, image.format or DUMMY_FORMAT
    _set_state(call, image, ImageState.READY)


def _set_state(call: Call, image: Image, state: ImageState) -> None:
    image.state = state
    call.one.hooks.image_changed(image, _xml(call, image))
    image.prev_state = state


def _xml(call: Call, item: Image) -> str:
    return render_image(item, call.store.datastores[item.datastore_id])


@method("one.image.info", "i?b")
def info(call: Call, image_id: int, decrypt: bool = False) -> str:  # noqa: ARG001 (nothing is encrypted here)
    """An image."""
    return escape(_xml(call, _image_for(call, image_id, USE)))


def _pool(call: Call, flag: int, start: int, end: int) -> list[Owned]:
    return paged(
        filtered(call, flag, [item for _, item in sorted(call.store.images.items(), reverse=True)], "IMAGE"), start, end
    )


@method("one.imagepool.info", "iii")
def pool(call: Call, flag: int, start: int, end: int) -> str:
    """Images, newest first."""
    images = _pool(call, flag, start, end)
    return escape(
        f"<IMAGE_POOL>{''.join(_xml(call, image) for image in images if isinstance(image, Image))}</IMAGE_POOL>"
    )


@method("one.image.delete", "i?b")
def delete(call: Call, image_id: int, force: bool = False) -> int:  # noqa: ARG001
    """Remove an image that no VM uses."""
    image = _image_for(call, image_id, MANAGE)
    if image.vms:
        raise OneError(ACTION, f"Cannot delete image. There are {len(image.vms)} VMs using it.")
    call.store.datastores[image.datastore_id].images.pop(image_id, None)
    del call.store.images[image_id]
    return image_id


@method("one.image.persistent", "ib")
def persistent(call: Call, image_id: int, wanted: bool) -> int:
    """Whether changes of a VM are kept in the image."""
    image = _image_for(call, image_id, MANAGE)
    if image.vms:
        raise OneError(ACTION, f"Image cannot be in state {ImageState(image.state).name}")
    image.persistent = int(wanted)
    return image_id


@method("one.image.enable", "ib")
def enable(call: Call, image_id: int, wanted: bool) -> int:
    """Whether VMs may use the image."""
    image = _image_for(call, image_id, MANAGE)
    if image.vms:
        raise OneError(ACTION, f"Image cannot be in state {ImageState(image.state).name}")
    _set_state(call, image, ImageState.READY if wanted else ImageState.DISABLED)
    return image_id


# id, name, state, driver, description
_MARKETS = (
    (
        1,
        "Linux Containers",
        1,
        "linuxcontainers",
        "MarketPlace for the public image server fo LXC & LXD hosted at linuxcontainers.org",
    ),
    (0, "OpenNebula Public", 0, "one", "OpenNebula Systems MarketPlace"),
)


@method("one.marketpool.info")
def markets(call: Call) -> str:  # noqa: ARG001
    """The marketplaces that OpenNebula comes with; nothing is on offer here."""
    parts: list[str] = []
    for number, name, state, mad, description in _MARKETS:
        thing = Owned(id=number, name=name, perms=(1, 1, 1, 1, 0, 0, 1, 0, 0))
        template = Template({"DESCRIPTION": [description], "MARKET_MAD": [mad]}).inner_xml()
        parts.append(
            f"<MARKETPLACE>{owner(thing)}<STATE>{state}</STATE><MARKET_MAD>{cdata(mad)}</MARKET_MAD><ZONE_ID>{cdata('0')}</ZONE_ID>"
            "<TOTAL_MB>0</TOTAL_MB><FREE_MB>0</FREE_MB><USED_MB>0</USED_MB><MARKETPLACEAPPS></MARKETPLACEAPPS>"
            f"{permissions(thing)}<TEMPLATE>{template}</TEMPLATE></MARKETPLACE>"
        )
    return escape(f"<MARKETPLACE_POOL>{''.join(parts)}</MARKETPLACE_POOL>")
