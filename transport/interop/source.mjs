// A source of workflows, written with the official TypeScript SDK.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const workflows = [
  {
    id: "ts-greet", name: "greet", description: "Greets somebody", executionType: "sync",
    inputSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
  },
  { id: "ts-count", name: "count", description: "Counts to three", executionType: "async" },
  { id: "ts-break", name: "break", description: "Breaks", executionType: "sync" },
  { id: "ts-wait", name: "wait", description: "Waits until it is cancelled", executionType: "async" },
  { id: "ts-ask", name: "ask", description: "Asks somebody", metadata: { performer: "person" } },
  { id: "ts-grow", name: "grow", description: "Adds a workflow", executionType: "sync" },
];
const executions = new Map(); // id -> { workflow, looks, cancelled }

const server = new McpServer({ name: "interop", version: "1.0.0" });
const json = (value) => ({ content: [{ type: "text", text: JSON.stringify(value) }] });
const about = { workflow_id: z.string(), execution_id: z.string() };

server.registerTool("workflows-list-tool", { description: "Lists the workflows", inputSchema: {} }, async () => json(workflows));

server.registerTool(
  "workflows-execute-tool",
  { description: "Runs a workflow", inputSchema: { workflow_id: z.string(), input: z.record(z.string(), z.any()) } },
  async ({ workflow_id, input }) => {
    switch (workflow_id) {
      case "ts-greet":
        return json({ greeting: `Hello, ${input.name}` });
      case "ts-break":
        throw new Error("it broke");
      case "ts-grow":
        workflows.push({ id: "ts-new", name: "fresh", description: "Came later", executionType: "sync" });
        server.sendToolListChanged();
        return json({ workflows: workflows.length });
    }
    const id = `ts-${executions.size + 1}`;
    executions.set(id, { workflow: workflow_id, looks: 0, cancelled: false });
    return json({ execution_id: id, status: "running" });
  },
);

server.registerTool("workflows-status-tool", { description: "Tells of an execution", inputSchema: about }, async ({ execution_id }) => {
  const e = executions.get(execution_id);
  if (!e) throw new Error("there is no such execution");
  e.looks++;
  if (e.cancelled) return json({ status: "cancelled" });
  if (e.workflow === "ts-count" && e.looks > 3) return json({ status: "completed", output: { counted: 3 } });
  return json({ status: "running", progress: Math.min(e.looks, 3), total: 3, message: `at ${e.looks}` });
});

server.registerTool("workflows-cancel-tool", { description: "Ends an execution", inputSchema: about }, async ({ execution_id }) => {
  const e = executions.get(execution_id);
  if (e) e.cancelled = true;
  return json({ status: "cancelled" });
});

await server.connect(new StdioServerTransport());
