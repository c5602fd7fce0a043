// An agent that is written with the official TypeScript SDK's client. It walks the
// job trip against the server that its argument names, and prints what it sees, one
// JSON object a line; the Go test judges that. The client itself checks structured
// content against the tool's output schema, and throws where it does not fit.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const the = JSON.parse(process.argv[2]); // {command, url, token, root, told, config, later}
const say = (at, what) => console.log(JSON.stringify({ at, ...what }));
const patience = { timeout: 30_000 };

// write makes files of the project, as an agent does.
function write(content, ...names) {
  mkdirSync(join(the.root, "docs"), { recursive: true });
  for (const name of names) writeFileSync(join(the.root, "docs", name), content);
}

function reach(token) {
  if (the.command) {
    const [command, ...args] = the.command;
    return new StdioClientTransport({ command, args, stderr: "inherit" });
  }
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  return new StreamableHTTPClientTransport(new URL(the.url), { requestInit: { headers } });
}

// A connection of the agent: call says what it got, under the name at.
async function connect(token = the.token) {
  const client = new Client({ name: "interop-typescript", version: "1.0.0" });
  const transport = reach(token);
  const news = () => new Promise((told) => client.setNotificationHandler(ToolListChangedNotificationSchema, () => told()));
  await client.connect(transport, patience);
  const call = async (at, name, args = {}, onprogress) => {
    const result = await client.callTool({ name, arguments: args }, undefined, { ...patience, onprogress });
    say(at, { error: result.isError === true, text: result.content[0].text, structured: result.structuredContent });
    return result.structuredContent;
  };
  return { client, transport, call, news };
}

async function tools(client) {
  const all = [];
  let cursor;
  do {
    const page = await client.listTools({ cursor }, patience);
    all.push(...page.tools);
    cursor = page.nextCursor;
  } while (cursor);
  return all;
}

// Who has no token, or a wrong one, is not let in.
if (the.token) {
  for (const [at, token] of [["nobody", ""], ["stranger", "wrong"]]) {
    await connect(token).then(
      () => say(at, { error: false }),
      (error) => say(at, { error: true, text: String(error), status: error.code }),
    );
  }
}

const a = await connect();
say("server", { structured: { ...a.client.getServerVersion(), capabilities: a.client.getServerCapabilities() }, text: a.client.getInstructions() });
await a.client.ping(patience);
const listed = await tools(a.client);
say("tools", { names: listed.map((t) => t.name), without: listed.filter((t) => t.outputSchema?.type !== "object").map((t) => t.name) });

// A workflow, with one refused output and a nested workflow on the way.
await a.call("workflows", "get_workflows");
await a.call("nothing", "get_step");
await a.call("unknown", "start_workflow", { goal: "x", job_name: "trip", workflow_name: "nowhere" });
const main = (await a.call("started", "start_workflow", { goal: "Walk", job_name: "trip", workflow_name: "main", request_id: "r1" })).begin_step.session_id;
await a.call("again", "start_workflow", { goal: "Walk", job_name: "trip", workflow_name: "main", request_id: "r1" });
await a.call("refused", "finished_step", { outputs: { notes: "docs/notes.md" } });
await a.call("mistyped", "finished_step", { outputs: { notes: ["docs/notes.md"] } });
await a.call("nested", "start_workflow", { goal: "Look aside", job_name: "trip", workflow_name: "side" });
write("seen", "sight.md");
await a.call("unnested", "finished_step", { outputs: { sight: "docs/sight.md" } });
write("noted", "notes.md");
await a.call("group", "finished_step", { outputs: { notes: "docs/notes.md" }, notes: "all of it" });
write("half", "left.md", "right-1.md", "right-2.md");
await a.call("right", "finished_step", { step_id: "right", outputs: { right: ["docs/right-1.md", "docs/right-2.md"] } });
await a.call("left", "finished_step", { step_id: "left", outputs: { left: "docs/left.md" } });

// The reviewer waits until the client has heard of its review.
const heard = [];
const hear = (progress) => {
  heard.push(progress);
  writeFileSync(the.told, "heard");
};
write("poor", "report.md");
await a.call("failed", "finished_step", { outputs: { report: "docs/report.md" } }, hear);
say("progress", { structured: heard });
write("this is good", "report.md");
await a.call("passed", "finished_step", { outputs: { report: "docs/report.md" } }, hear);
await a.call("back", "go_to_step", { step_id: "judge" });
await a.call("ahead", "go_to_step", { step_id: "wrap" });

// The tools of a source that the config gets now, without a restart: the client is
// told, and asks for the list again.
writeFileSync(the.config, the.later);
for (let told = false, names = []; ; told = true) {
  const news = a.news();
  names = (await tools(a.client)).map((t) => t.name);
  if (told && names.includes("greet")) {
    say("changed", { names });
    break;
  }
  await news;
}
await a.call("greeted", "greet", { name: "Ada" });

const project = (await a.call("projects", "list_projects")).projects[0].project_id;
const task = (await a.call("created", "create_task", { project_id: project, title: "Fix the door" })).task_id;
await a.call("tasks", "list_tasks", { project_id: project });
await a.call("task", "get_task", { task_id: task });

// The connection is lost: the server is killed, or it hears no more of its client.
if (the.command) process.kill(a.transport.pid, "SIGKILL");
await a.client.close();

const b = await connect();
await tools(b.client);
await b.call("lost", "get_step");
await b.call("found", "get_step", { session_id: main });
await b.call("resumed", "finished_step", { session_id: main, outputs: { report: "docs/report.md" } });
write("the end", "summary.md");
await b.call("complete", "finished_step", { outputs: { summary: "docs/summary.md" } });
await b.call("second", "start_workflow", { goal: "Look", job_name: "trip", workflow_name: "side" });
await b.call("aborted", "abort_workflow", { explanation: "Seen enough" });

if (the.url) {
  const id = b.transport.sessionId;
  await b.transport.terminateSession();
  const headers = { "Content-Type": "application/json", Accept: "application/json, text/event-stream", "Mcp-Session-Id": id };
  if (the.token) headers.Authorization = `Bearer ${the.token}`;
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping" });
  const answer = await fetch(the.url, { method: "POST", headers, body });
  await answer.arrayBuffer();
  say("terminated", { status: answer.status, text: b.transport.sessionId ?? "" });
}
await b.client.close();
say("end", {});
