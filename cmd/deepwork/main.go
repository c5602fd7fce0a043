// Command deepwork is an MCP server that leads AI agents through multi-step work, with tools for
// the people who use it.
package main

import "os"

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
