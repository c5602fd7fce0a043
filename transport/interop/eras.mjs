// A client that is written with the second major version of the official TypeScript SDK, in the generation of the
// protocol that its argument names: its user is asked about a step, and it lists and reads what the server has. It
// prints what it sees, one JSON object per line.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const the = JSON.parse(process.argv[2]); // {mode, command, url}
const say = (at, what) => console.log(JSON.stringify({ at, ...what }));
const [command, ...args] = the.command ?? [];

const client = new Client(
  { name: "interop-eras", version: "1.0.0" },
  { versionNegotiation: { mode: the.mode }, capabilities: { elicitation: { form: {} } } },
);
client.setRequestHandler("elicitation/create", async ({ params }) => {
  say("question", { text: params.message, structured: params.requestedSchema });
  return { action: "accept", content: { decision: "pass", feedback: "Well walked" } };
});
await client.connect(command ? new StdioClientTransport({ command, args, stderr: "inherit" }) : new StreamableHTTPClientTransport(new URL(the.url)));
say("server", { text: client.getInstructions(), structured: { protocol: client.getNegotiatedProtocolVersion() } });
say("tools", { names: (await client.listTools()).tools.map((t) => t.name) });
const { prompts } = await client.listPrompts();
say("prompts", { names: prompts.map((p) => p.name) });
const prompt = await client.getPrompt({ name: "deepwork:care:main", arguments: { goal: "Walk the dog" } });
say("prompt", { text: prompt.messages[0].content.text });
say("resources", { names: (await client.listResources()).resources.map((r) => r.uri) });
say("resource", { text: (await client.readResource({ uri: "deepwork://jobs/care" })).contents[0].text });

const call = async (at, name, args) => {
  const result = await client.callTool({ name, arguments: args });
  say(at, { error: result.isError === true, text: result.content[0].text, structured: result.structuredContent });
  return result.structuredContent;
};
const { session_id } = (await call("started", "start_workflow", { goal: "Walk", job_name: "care", workflow_name: "main" })).begin_step;
await call("written", "finished_step", { session_id, step_id: "write", outputs: { report: "report.md" } });
await call("judged", "finished_step", { session_id, step_id: "judge", outputs: { verdict: "verdict.md" } });
await client.close();
say("end", {});
