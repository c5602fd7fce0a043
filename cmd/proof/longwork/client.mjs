// A client, written with the official TypeScript SDK, which makes one long call and brings its result home,
// however often the server is killed: it connects again, asks for its task, and repeats what was lost. It prints what
// it sees, one JSON object a line. The SDK does not know the extension for tasks yet, so its requests are made here.
import { once } from "node:events";
import { Client, ProtocolError, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const the = JSON.parse(process.argv[2]); // {kind, era, takes, token, command or url, start, call: {name, arguments}}
const extension = "io.modelcontextprotocol/tasks";
const lost = "00000000-0000-4000-8000-000000000000"; // an execution that nobody knows
const anything = { "~standard": { version: 1, vendor: "proof", validate: (value) => ({ value }) } };
const patience = { timeout: 120_000 };
const say = (at, what) => console.log(JSON.stringify({ at, ...what }));
const rest = (ms) => new Promise((over) => setTimeout(over, ms));

// answer is what the user fills in, after some time to think, once for a question that is shown again.
let due;
async function answer() {
  say("asked");
  due ??= Date.now() + the.takes;
  await rest(Math.max(0, due - Date.now()));
  say("answered");
  return { action: "accept", content: { decision: "pass", feedback: the.token } };
}

let client;
async function connected() {
  if (client) return client;
  const capabilities = { elicitation: { form: {} } };
  if (the.url) capabilities.extensions = { [extension]: {} };
  const mode = the.era === "2025-11-25" ? "legacy" : { pin: the.era };
  const c = new Client({ name: "proof", version: "1.0.0" }, { capabilities, versionNegotiation: { mode } });
  c.setRequestHandler("elicitation/create", answer);
  const [command, ...args] = the.command ?? [];
  const transport = the.url ? new StreamableHTTPClientTransport(new URL(the.url)) : new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" });
  await c.connect(transport, patience);
  if (c.getNegotiatedProtocolVersion() !== the.era) throw new Error(`the server speaks ${c.getNegotiatedProtocolVersion()}`);
  const receive = transport.onmessage; // it refuses a result that is a task
  transport.onmessage = (m, extra) => receive(m.result?.resultType === "task" ? { ...m, result: { resultType: "complete", content: [], task: m.result } } : m, extra);
  c.onclose = () => { if (client === c) client = undefined; };
  if (the.command) say("server", { pid: transport.pid });
  return (client = c);
}

// reliably makes a request until it has an answer. again is done after each loss.
async function reliably(method, params, again) {
  for (;;) {
    try {
      return await (await connected()).request({ method, params }, anything, patience);
    } catch (error) {
      if (error instanceof ProtocolError && error.code !== -32603) throw error;
      say("lost", { text: `${method}: ${error}` });
      const c = client;
      client = undefined;
      await c?.close().catch(() => {});
      await rest(200);
      const found = await again?.();
      if (found) return found;
    }
  }
}
const tool = (name, args, again) => reliably("tools/call", { name, arguments: args }, again);

// follow polls a task until its end, and answers what it asks, each question once.
async function follow(id) {
  const asked = new Set();
  for (;;) {
    const now = await reliably("tasks/get", { taskId: id });
    if (!["working", "input_required"].includes(now.status)) return now;
    for (const key of Object.keys(now.inputRequests ?? {}).filter((k) => !asked.has(k))) {
      asked.add(key);
      await reliably("tasks/update", { taskId: id, inputResponses: { [key]: await answer() } });
    }
    await rest(now.pollIntervalMs);
  }
}

// until makes a call until its reply has a value that says that it is over.
async function until(name, args, over) {
  for (;;) {
    const r = await tool(name, args);
    if (r.isError || over(r.structuredContent)) return r;
    await rest(500);
  }
}
const ended = (r) => !["running", "queued", "waiting"].includes(r.state);

// executed finds the execution of a call whose reply was lost, since it must not be made again, and waits for its end.
// Without one the call is made again, once the source is connected again.
async function executed() {
  const known = (await tool("workflow_status", { execution_id: lost })).content[0].text.match(/[0-9a-f]{8}-[0-9a-f-]{27}/g).find((id) => id !== lost);
  if (known) return until("workflow_status", { execution_id: known }, ended);
  await tool("refresh_workflow_tools", {});
}

// collected is the result of a call without a task.
async function collected(first, args) {
  if (the.kind === "run") return until("get_run", { run_id: first.structuredContent.run_id }, ended);
  if (the.kind === "remote") return first.structuredContent.state === "running" ? until("workflow_status", { execution_id: first.structuredContent.execution_id }, ended) : first;
  return first.structuredContent?.status === "needs_work" ? until(the.call.name, args, (r) => r.status !== "needs_work") : first;
}

const args = the.call.arguments;
if (the.start) args.session_id = (await tool("start_workflow", the.start)).structuredContent.begin_step.session_id;
await connected();
if (the.kind === "remote") await tool("refresh_workflow_tools", {});
say("calling", { text: args.session_id });
const first = await tool(the.call.name, args, async () => {
  if (the.kind === "remote") return executed();
  if (args.session_id) say("step", { text: (await tool("get_step", { session_id: args.session_id })).content[0].text.slice(0, 300) });
});
const id = first.task?.taskId;
if (id) say("task", { text: id });
const task = id && (await follow(id));
const result = id ? task.result : first.isError || the.url ? first : await collected(first, args);
say("done", { status: task?.status ?? "completed", failed: result?.isError ?? false, structured: result?.structuredContent, text: result?.content?.[0]?.text });
await once(process.stdin, "data");
if (id) say("again", { same: JSON.stringify(await reliably("tasks/get", { taskId: id })) === JSON.stringify(task) });
await client?.close();
process.exit(0);
