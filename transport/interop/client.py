"""An agent that is written with the official Python SDK's client. It walks the job
trip as client.mjs does, in a shorter form, over stdio, SSE and streamable HTTP, with
the handshake of old and in the newest protocol version, which has no connection. It
prints what it sees, one JSON object a line; the Go test judges that. The client
checks structured content against the tool's output schema, and raises where it does
not fit."""

import asyncio
import contextlib
import json
import pathlib
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

the = json.loads(sys.argv[1])  # {over, mode, command, url, token, root, told, config, later}
root = pathlib.Path(the["root"])


def say(at, **what):
    print(json.dumps({"at": at, **what}), flush=True)


def write(content, *names):
    """Makes files of the project, as an agent does."""
    (root / "docs").mkdir(exist_ok=True)
    for name in names:
        (root / "docs" / name).write_text(content)


class Agent:
    """One connection; call says what it got, under the name at."""

    def __init__(self, client, changed):
        self.client = client
        self.changed = changed  # set when the server says that its tools have changed

    async def call(self, at, name, /, *, progress=None, **args):
        result = await self.client.call_tool(name, args, progress_callback=progress)
        say(at, error=result.is_error, text=result.content[0].text, structured=result.structured_content)
        return result.structured_content

    async def tools(self):
        all, cursor = [], None
        while True:
            page = await self.client.list_tools(cursor=cursor)
            all += page.tools
            cursor = page.next_cursor
            if not cursor:
                return all


@contextlib.asynccontextmanager
async def connect(token):
    changed = asyncio.Event()

    async def hear(message):
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            changed.set()

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with contextlib.AsyncExitStack() as stack:
        if the["over"] == "stdio":
            command, *args = the["command"]
            transport = stdio_client(StdioServerParameters(command=command, args=args))
        elif the["over"] == "sse":
            transport = sse_client(the["url"], headers=headers)
        else:
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=300)))
            # Without a DELETE: the server is not told that the client goes.
            transport = streamable_http_client(the["url"], http_client=http, terminate_on_close=False)
        client = Client(transport, mode=the["mode"], read_timeout_seconds=30, message_handler=hear)
        await stack.enter_async_context(client)
        yield Agent(client, changed)


def root_of(error):
    """The first error that is no group of others."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def grow(a):
    """Waits for the tools of a source that the config gets now."""
    async with contextlib.AsyncExitStack() as stack:
        if the["mode"] != "legacy":
            subscription = await stack.enter_async_context(a.client.listen(tools_list_changed=True))
            news = aiter(subscription)
            wait = lambda: anext(news)
        else:
            a.changed.clear()
            wait = a.changed.wait
        pathlib.Path(the["config"]).write_text(the["later"])
        while True:
            await wait()
            a.changed.clear()
            names = [t.name for t in await a.tools()]
            if "greet" in names:
                return say("changed", names=names)


async def main():
    if the["token"]:
        for at, token in ("nobody", ""), ("stranger", "wrong"):
            try:
                async with connect(token):
                    say(at, error=False)
            except* Exception as errors:
                say(at, error=True, text=repr(root_of(errors)))

    async with connect(the["token"]) as a:
        info = a.client.server_info
        say("server", structured={"name": info.name, "version": info.version, "protocol": a.client.protocol_version}, text=a.client.instructions)
        listed = await a.tools()
        say("tools", names=[t.name for t in listed], without=[t.name for t in listed if (t.output_schema or {}).get("type") != "object"])
        await a.call("workflows", "get_workflows")
        await a.call("unknown", "start_workflow", goal="x", job_name="trip", workflow_name="nowhere")
        started = await a.call("started", "start_workflow", goal="Walk", job_name="trip", workflow_name="main")
        session = started["begin_step"]["session_id"]
        await a.call("refused", "finished_step", outputs={"notes": "docs/notes.md"})
        await a.call("mistyped", "finished_step", outputs={"notes": ["docs/notes.md"]})
        nested = await a.call("nested", "start_workflow", goal="Look aside", job_name="trip", workflow_name="side", parent_session_id=session)
        write("seen", "sight.md")
        await a.call("unnested", "finished_step", outputs={"sight": "docs/sight.md"}, session_id=nested["begin_step"]["session_id"])
        write("noted", "notes.md")
        await a.call("group", "finished_step", outputs={"notes": "docs/notes.md"}, notes="all of it")
        write("half", "left.md", "right-1.md", "right-2.md")
        await a.call("right", "finished_step", step_id="right", outputs={"right": ["docs/right-1.md", "docs/right-2.md"]})
        await a.call("left", "finished_step", step_id="left", outputs={"left": "docs/left.md"})

        # The reviewer waits until the client has heard of its review.
        heard = []

        async def hear(progress, total, message):
            heard.append({"progress": progress, "message": message})
            pathlib.Path(the["told"]).write_text("heard")

        write("poor", "report.md")
        await a.call("failed", "finished_step", progress=hear, outputs={"report": "docs/report.md"})
        say("progress", structured=heard)
        write("this is good", "report.md")
        await a.call("passed", "finished_step", progress=hear, outputs={"report": "docs/report.md"})
        await a.call("back", "go_to_step", step_id="judge")
        await grow(a)
        await a.call("greeted", "greet", name="Ada")
        project = (await a.call("projects", "list_projects"))["projects"][0]["project_id"]
        await a.call("created", "create_task", project_id=project, title="Fix the door")
        await a.call("tasks", "list_tasks", project_id=project)

    async with connect(the["token"]) as b:
        await b.tools()
        await b.call("found", "get_step", session_id=session)
        await b.call("resumed", "finished_step", session_id=session, outputs={"report": "docs/report.md"})
        write("the end", "summary.md")
        await b.call("complete", "finished_step", outputs={"summary": "docs/summary.md"})
        await b.call("second", "start_workflow", goal="Look", job_name="trip", workflow_name="side")
        await b.call("aborted", "abort_workflow", explanation="Seen enough")
    say("end")


asyncio.run(asyncio.wait_for(main(), 60))
