// Command deepwork is an MCP server that guides AI agents through multi-step work, with commands
// for the people who use it. Each subcommand has a file; scripts in testdata drive the built binary.
//
// # The code
//
// Imports lead upwards in this list only:
//
//   - actor: mailboxes, supervision, passivation, child processes (actor/process), durable files
//     (actor/durable), and which servers are running (actor/presence). It does not know the rest.
//   - catalog: definitions. Jobs and their format (catalog/job), hot reload, bundled jobs
//     (catalog/standard), the config (catalog/config), and workflows of other systems (catalog/source).
//   - gate: what a reviewer reads, the pool of reviewers, and their verdicts.
//   - session: what runs. The workflow engine (session/workflow) on the records of sessions (session/record), their
//     definitions (session/definition), exports (session/export) and branches (session/branch), the
//     stores (session/store), remote runs (session/remote), attempts of agents at tasks (session/attempt) in
//     worktrees, and runs through workflows (session/run).
//   - transport: MCP over stdio, HTTP and SSE, with one file per tool; who may call, and how much.
//   - cmd/deepwork: the command line.
//   - cmd/proof: tests the program from outside with load, faults and figures. It is not shipped.
//
// # Checks
//
// .ci/run runs every check. These measure more:
//
//	go run ./cmd/proof figures          # every promised figure beside its comparison; -write keeps them
//	go run ./cmd/proof load --servers 2 # many real clients on a server; each session is checked
//
// transport/BENCHMARKS.md has the figures. "go run ./cmd/proof load --help" lists the options of load.
package main
