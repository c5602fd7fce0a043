package main

import (
	"io"
	"slices"
	"sync"
	"unicode/utf8"

	"deepwork/session/show"
)

// What is printed comes from others: names, goals and notes of agents.
var (
	plain   = show.Plain
	inline  = show.Inline
	oneLine = show.OneLine
	indent  = show.Indent

	indentRest = show.IndentRest
	optional   = show.Optional
)

// A plainWriter makes text written to w safe for a terminal, as plain does: names and paths come
// from the authors of the project.
type plainWriter struct {
	w io.Writer

	mu   sync.Mutex
	tail []byte // the first bytes of an incomplete character
}

// redirect makes it write to another writer, and returns what undoes that.
func (p *plainWriter) redirect(to io.Writer) (undo func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := p.w
	p.w = to
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.w = from
	}
}

func (p *plainWriter) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Concat(p.tail, text)
	whole := len(all)
	for n := 1; n < utf8.UTFMax && n <= len(all); n++ {
		if start := len(all) - n; utf8.RuneStart(all[start]) {
			if !utf8.FullRune(all[start:]) {
				whole = start
			}
			break
		}
	}
	p.tail = slices.Clone(all[whole:])
	if _, err := io.WriteString(p.w, plain(string(all[:whole]))); err != nil {
		return 0, err
	}
	return len(text), nil
}
