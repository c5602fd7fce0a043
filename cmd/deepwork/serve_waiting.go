package main

import (
	"fmt"
	"strings"

	"deepwork/catalog/trust"
)

// sayWaiting tells a person who started a server at a terminal what it waits for, and how to connect
// a client. url is "" for a server on stdin and stdout.
func (a *app) sayWaiting(url string) {
	if !isTerminal(a.in) {
		return
	}
	project := ""
	if a.path != "" {
		project = " --path " + trust.Quote(a.path)
	}
	if url != "" {
		fmt.Fprintf(a.err, `
Waiting for clients at %s.
To connect one, run this in another terminal, and then
start the client:

  deepwork init%s --url %s

With --client, for another one than Claude Code: %s.
Ctrl-C ends the server.

`, url, project, url, strings.Join(clientNames()[1:], ", "))
		return
	}
	fmt.Fprintf(a.err, `
Waiting for an MCP client on stdin. There is nothing to
type here: a client starts this command itself. To have
one do that, end this with Ctrl-C, run

  deepwork init%s [--client %s]

and start the client. To see the project in a browser, run

  deepwork ui%s

`, project, strings.Join(clientNames(), "|"), project)
}
