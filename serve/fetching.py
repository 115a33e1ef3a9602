"""Pictures by a URL of the web, fetched so that no address inside can be reached.

The host's name is resolved once, every address it has must be public, and the connection goes to
the address that was checked: a name that answers differently the second time changes nothing.
Redirects are not followed and no proxy of the environment is used.
"""

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

import httpx

from serve.settings import ImageUrlSettings
from vmem.errors import ImageError

Address = IPv4Address | IPv6Address

NAT64 = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
"""Where an IPv4 address may stand in the last 32 bits (RFC 6052, RFC 8215)."""
_REFUSED = "The picture's address is not a public one."


async def fetch_image(
    url: str, settings: ImageUrlSettings, transport: httpx.AsyncBaseTransport | None = None
) -> bytes:
    """The bytes at a public address of the web, not yet decoded.

    Args:
        url: An http or https URL.
        settings: Whether pictures are fetched at all, from where, and the caps.
        transport: What sends the request; tests put their own.

    Raises:
        ImageError: It is switched off, the host is not public or not allowed, or what comes is no
            picture in time and size. The sentence does not tell why an address is not reached.
    """
    if not settings.enabled:
        raise ImageError("This service does not fetch pictures: send base64 or a file.")
    parts = urlsplit_checked(url)
    host = parts.hostname or ""
    if settings.allowed_hosts and host not in settings.allowed_hosts:
        raise ImageError("The picture's host is not among those that this service asks.")
    try:
        async with asyncio.timeout(settings.timeout_s):
            address = await resolve(host, parts.port)
            return await _get(httpx.URL(url), host, address, settings, transport)
    except (TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
        raise ImageError("The picture could not be fetched from its address.") from error


def urlsplit_checked(url: str) -> SplitResult:
    """The parts of an http or https URL without credentials.

    Raises:
        ImageError: It is something else.
    """
    try:
        parts = urlsplit(url)
        usable = parts.hostname and parts.scheme in {"http", "https"} and parts.port != 0
    except ValueError as error:
        raise ImageError("The picture's URL is not valid.") from error
    if not usable or parts.username is not None or parts.password is not None:
        raise ImageError("A picture's URL begins with https:// or http:// and names a host.")
    return parts


async def resolve(host: str, port: int | None) -> Address:
    """The address of a host, all of whose addresses are public.

    Raises:
        ImageError: One is not, or there is none.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port or 443, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ImageError(_REFUSED) from error
    addresses = [ip_address(str(info[4][0]).partition("%")[0]) for info in found]
    if not addresses or not all(is_public(address) for address in addresses):
        raise ImageError(_REFUSED)
    return addresses[0]


def is_public(address: Address) -> bool:
    """Whether an address, and every one that it stands for, is one of the public internet."""
    return all(
        one.is_global and not one.is_multicast and not one.is_reserved
        for one in (address, *_embedded(address))
    )


def _embedded(address: Address) -> Iterable[IPv4Address]:
    if isinstance(address, IPv4Address):
        return
    if address.ipv4_mapped:
        yield address.ipv4_mapped
    if address.sixtofour:
        yield address.sixtofour
    if address.teredo:
        yield from address.teredo
    if any(address in network for network in NAT64) or not int(address) >> 32:
        yield IPv4Address(int(address) & 0xFFFFFFFF)


async def _get(
    url: httpx.URL,
    host: str,
    address: Address,
    settings: ImageUrlSettings,
    transport: httpx.AsyncBaseTransport | None,
) -> bytes:
    """Ask the address that was checked; name and certificate stay those of the host."""
    asked = url.copy_with(host=str(address), fragment=None)
    headers = {
        "host": url.netloc.decode("ascii"),
        "accept": "image/*",
        "accept-encoding": "identity",
    }
    client = httpx.AsyncClient(
        transport=transport, trust_env=False, follow_redirects=False, timeout=settings.timeout_s
    )
    async with (
        client,
        client.stream("GET", asked, headers=headers, extensions={"sni_hostname": host}) as response,
    ):
        if response.status_code != httpx.codes.OK:
            raise ImageError("The picture's address answers with no picture.")
        data = bytearray()
        async for piece in response.aiter_raw():
            data += piece
            if len(data) > settings.max_bytes:
                raise ImageError(f"The picture is over {settings.max_bytes:,} bytes.")
    return bytes(data)
