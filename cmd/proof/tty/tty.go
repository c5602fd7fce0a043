// Package tty runs commands that ask a person at a terminal, for tests: it makes the terminal, and types
// the answer.
package tty

import "errors"

// ErrNone is the error where no terminal can be made.
var ErrNone = errors.New("no terminals can be made here")
