// Package interop holds what is tested with software of others, against the built
// binary:
//
//   - client.mjs, an agent written with the official TypeScript SDK, over stdio and
//     streamable HTTP;
//   - eras.mjs, a client of its second major version, in the versions of MCP with a connection and in the newest;
//   - client.py, one written with the official Python SDK, over stdio, SSE and
//     streamable HTTP, in the versions of MCP with a connection and in the newest;
//   - the command line of the MCP Inspector;
//   - the scenarios of MCP's conformance suite that apply to such a server;
//   - Claude Code, which searches for tools and asks its user, in both generations of the protocol;
//   - Claude Code, Codex CLI and Gemini CLI, over stdio and streamable HTTP, each with a
//     scripted model in place of its maker's, by themselves and led by deepwork run; and what
//     the first two print as JSON;
//   - OpenCode, likewise, led by deepwork run, on linux/amd64;
//   - source.mjs, a source of workflows written with the official TypeScript SDK.
//
// A client prints what it sees, and a Go test judges that. The tests have the build
// tag interop and need npm, and Python with venv; npm's packages, among them a Node
// that is new enough, and Python's are installed into a temporary folder in the
// versions that package-lock.json and requirements.txt name. .ci/run runs them:
//
//	go test -tags interop ./transport/interop
//
// The lock file has no addresses, so that any registry will do. To renew it:
//
//	npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved
//
// The folder agents has a second one for the agents, which are large. .ci/newest runs the tests with the newest
// versions that npm serves, and prints which these are.
package interop
