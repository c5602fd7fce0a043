//go:build !unix

package main

import (
	"io"
	"os"
)

// interruptibleStdin is stdin itself: a blocked Read of it ends with the process.
func interruptibleStdin(file *os.File) (io.ReadCloser, error) { return file, nil }
