package main

import "deepwork/session/show"

// What is printed comes from others: names, goals and notes of agents.
var (
	plain   = show.Plain
	inline  = show.Inline
	oneLine = show.OneLine
	indent  = show.Indent

	indentRest = show.IndentRest
	optional   = show.Optional

	terminalSize = show.TerminalSize
)
