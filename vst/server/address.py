"""What a server's address may look like. Pure functions; nothing is resolved or asked here."""

from __future__ import annotations

from urllib.parse import urlsplit


def base_url_problem(url: str) -> str | None:
    """Why ``url`` cannot be a server's base URL, or None; credentials in it are never repeated."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"it cannot be read: {error}" if "@" not in url else "it cannot be read"
    if parts.username is not None or parts.password is not None:
        return "it holds credentials, which would be written into the evidence: use server.api_key_env"
    if parts.scheme not in ("http", "https"):
        return f"{url!r} does not begin with http:// or https://"
    if not parts.hostname or not parts.netloc.isascii() or any(char.isspace() for char in url) or port == 0:
        return f"{url!r} does not name a host and a port"
    if parts.query or parts.fragment:
        return f"{url!r} has a query or a fragment"
    return None
