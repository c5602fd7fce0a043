// A source whose workflows are the test tools that scenarios of MCP's conformance
// suite ask for: deepwork passes a workflow's schema on, and tells of its changes.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";

const dialect = "https://json-schema.org/draft/2020-12/schema";
const workflows = [
  {
    id: "schema", name: "json_schema_2020_12_tool", description: "Its schema uses what is new in 2020-12", executionType: "sync",
    inputSchema: {
      $schema: dialect,
      type: "object",
      $defs: {
        address: {
          $anchor: "addressDef",
          type: "object",
          properties: { street: { type: "string" }, city: { type: "string" } },
        },
      },
      properties: {
        name: { type: "string" },
        address: { $ref: "#/$defs/address" },
        contactMethod: { type: "string", enum: ["phone", "email"] },
        phone: { type: "string" },
        email: { type: "string" },
      },
      allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
      if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
      then: { required: ["phone"] },
      else: { required: ["email"] },
      additionalProperties: false,
    },
  },
  {
    id: "trigger", name: "test_trigger_tool_change", description: "Adds a workflow", executionType: "sync",
    // What asks for a header is not passed on: nobody would compare it.
    inputSchema: { type: "object", properties: { region: { type: "string", "x-mcp-header": "Region" } } },
  },
  { id: "greet", name: "greet", description: "Answers at once", executionType: "sync" },
  { id: "slow", name: "slow_compute", description: "Takes its time", executionType: "sync" },
  { id: "fail", name: "failing_job", description: "Fails in the end", executionType: "sync" },
];

const server = new McpServer({ name: "everything", version: "1.0.0" });
const json = (value) => ({ content: [{ type: "text", text: JSON.stringify(value) }] });

server.registerTool("workflows-list-tool", { description: "Lists the workflows", inputSchema: {} }, async () => json(workflows));

server.registerTool(
  "workflows-execute-tool",
  { description: "Runs a workflow", inputSchema: { workflow_id: z.string(), input: z.record(z.string(), z.any()) } },
  async ({ workflow_id, input }) => {
    // What takes longer than 3 s becomes a task of deepwork.
    if (workflow_id === "slow" && input.seconds > 0) await sleep((4 + input.seconds) * 1000);
    if (workflow_id === "fail") {
      await sleep(4000);
      throw new Error("it failed");
    }
    if (workflow_id === "trigger") {
      workflows.push({ id: `new-${workflows.length}`, name: `fresh_${workflows.length}`, description: "Came later", executionType: "sync" });
      server.sendToolListChanged();
    }
    return json({ done: workflow_id });
  },
);

await server.connect(new StdioServerTransport());
