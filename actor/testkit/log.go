package testkit

import (
	"bytes"
	"strings"
	"sync"
)

// A Log collects what is written to it and may be read at the same time.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends p.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all that has been written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns how often text occurs.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }
