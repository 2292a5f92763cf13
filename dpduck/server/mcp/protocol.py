"""Protocol of agents: MCP by its own SDK, with tools alone. There are no resources, prompts, sampling or logs.

The SDK is an extra, and is imported when a server is made. Each call of a tool runs in a thread. If its client
goes or cancels, a statement over released tables ends. A release goes on, since it may be charged already.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TextIO

from dpduck.server.clients.desk import Desk
from dpduck.server.gate import UNEXPECTED, Service
from dpduck.server.limits import GivenUp
from dpduck.server.mcp.tools import INSTRUCTIONS, TOOLS, call, refusal_text
from dpduck.server.principals import Principal
from dpduck.values.errors import DpduckError, StoreError

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server

AT_ONCE = 64
"""The largest number of calls that run at the same time."""

NAME = "dpduck"
_BEGINNINGS = frozenset(("initialize", "server/discover"))
"""Methods with which a client begins."""

Who = Callable[[Any], Principal]
"""Returns the principal of a call, from the SDK's context. Raises PermissionRefusal if the token has ended."""


def require_sdk() -> None:
    """Refuses to go on without the SDK."""
    try:
        import mcp.server.lowlevel.server  # noqa: F401, PLC0415
        import uvicorn  # noqa: F401, PLC0415
    except ImportError:
        raise StoreError("agents need the package mcp; accepted: pip install '.[mcp]' in dpduck's folder") from None
    for name in ("mcp", "uvicorn"):  # their warnings quote what clients send
        logging.getLogger(name).setLevel(logging.CRITICAL)


def agent_server(service: Service, who: Who, has_gone: Callable[[Any], bool] = lambda _: False) -> Server[Any]:
    """Returns a server of the SDK with the tools of agents. has_gone: tells whether the client of a call has gone."""
    import anyio  # noqa: PLC0415
    import mcp_types as types  # noqa: PLC0415
    from mcp.server.lowlevel.server import Server  # noqa: PLC0415

    places: list[anyio.CapacityLimiter] = []  # made in the loop that serves

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool.model_validate(described) for described in tool_descriptions()])

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if not places:
            places.append(anyio.CapacityLimiter(AT_ONCE))
        gone = threading.Event()

        def run() -> tuple[dict[str, Any], bool]:
            def given_up() -> bool:
                return gone.is_set() or has_gone(context)

            return run_tool(service, who, context, params.name, params.arguments, given_up)

        try:
            result, refused = await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=places[0])
        except anyio.get_cancelled_exc_class():
            gone.set()
            raise
        if refused:
            return types.CallToolResult(content=[types.TextContent(text=result["refused"])], is_error=True)
        content = types.TextContent(text=json.dumps(result))  # in ASCII: no character is invisible
        return types.CallToolResult(content=[content], structured_content=result)

    server: Server[Any] = Server(
        NAME,
        version=version("dpduck"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=lambda _name: None,
    )
    server.middleware = [_noting_beginnings(service, who)]
    return server


def _noting_beginnings(service: Service, who: Who) -> Any:
    """Notes in the audit log that a principal connects, at most once a minute, so that no agent fills the disk."""
    import anyio  # noqa: PLC0415

    lock, minutes = threading.Lock(), dict[str, int]()

    def write(context: Any) -> None:
        with suppress(DpduckError):  # the call itself is refused
            name, minute = who(context).name, int(time.monotonic() / 60)
            with lock:
                is_first, minutes[name] = minutes.get(name) != minute, minute
            if is_first:
                service.audit.note(name, "connected", why="MCP")

    async def note(context: Any, call_next: Any) -> Any:
        if context.method in _BEGINNINGS:
            await anyio.to_thread.run_sync(write, context)
        return await call_next(context)

    return note


def tool_descriptions() -> list[dict[str, Any]]:
    """Describes all tools as MCP does."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "inputSchema": tool.schema(),
            "outputSchema": {"type": "object"},
            "annotations": {
                "readOnlyHint": tool.free, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False,
            },
        }
        for tool in TOOLS
    ]  # fmt: skip


def run_tool(
    service: Service, who: Who, context: Any, name: str, arguments: Any, given_up: GivenUp
) -> tuple[dict[str, Any], bool]:
    """Runs one call of a tool. Returns its result, or the text of its refusal, and whether it is refused."""
    try:
        return call(Desk(service, who(context), given_up), name, arguments), False
    except DpduckError as error:
        return {"refused": refusal_text(error)}, True
    except Exception:  # its text could quote data
        return {"refused": UNEXPECTED}, True


def serve_streams(service: Service, principal: str, given: TextIO, written: TextIO) -> None:
    """Serves one agent over two streams, until the first one ends."""
    import anyio  # noqa: PLC0415
    from mcp.server.stdio import stdio_server  # noqa: PLC0415

    server = agent_server(service, lambda _context: service.book.find(principal))

    async def run() -> None:
        async with stdio_server(anyio.wrap_file(given), anyio.wrap_file(written)) as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(run)
