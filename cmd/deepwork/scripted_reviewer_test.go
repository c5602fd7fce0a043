package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// scriptedReviewer is a reviewer program for the scripts: what it says is in the
// files that it is given, and it keeps what it read in the file that its first
// argument names.
func scriptedReviewer() {
	task, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "reading the task:", err)
		os.Exit(1)
	}
	if len(os.Args) > 1 {
		if err := os.WriteFile(os.Args[1], task, 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "keeping the task:", err)
			os.Exit(1)
		}
	}
	said := func(what string) bool { return bytes.Contains(task, []byte("this one is "+what)) }
	switch {
	case said("broken"):
		fmt.Fprintln(os.Stderr, "out of tokens")
		os.Exit(3)
	case said("bad"):
		fmt.Println(`{"passed": false, "feedback": "Write more.\nMuch more.", "criteria_results": [{"criterion": "good", "passed": false, "feedback": "too short"}]}`)
	default:
		fmt.Println(`{"passed": true, "feedback": "", "criteria_results": [{"criterion": "good", "passed": true, "feedback": null}]}`)
	}
}
