//go:build !unix

package main

import "os"

// interruptibleStdin is stdin itself: a blocked Read of it ends with the process.
func interruptibleStdin(file *os.File) (*os.File, error) { return file, nil }
