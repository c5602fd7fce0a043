package tool

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// InFlight is the tool calls that run, so that a server that stops can wait for them
// and name those that did not end.
type InFlight struct {
	mu    sync.Mutex
	calls map[*CallLog]struct{}
}

// begin records a call until the returned function is called.
func (f *InFlight) begin(l *CallLog) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[*CallLog]struct{}{}
	}
	f.calls[l] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.calls, l)
	}
}

// Len returns how many calls run.
func (f *InFlight) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

// Names returns for each call its tool, its caller and how long it has run.
func (f *InFlight) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for l := range f.calls {
		out = append(out, fmt.Sprintf("%s of %s (for %v)", l.Tool, l.identity, time.Since(l.began).Round(time.Millisecond)))
	}
	slices.Sort(out)
	return out
}
