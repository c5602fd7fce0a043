package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"deepwork/session/attempt"
	"deepwork/session/show"
)

// drawEvery spaces the drawings of a liveView.
const drawEvery = 300 * time.Millisecond

// A liveView draws the steps of a run in place. Its methods may be called concurrently.
type liveView struct {
	to io.Writer // the terminal

	mu    sync.Mutex
	drawn []string  // lines that are on the screen
	at    time.Time // of the last drawing
}

// newLiveView returns nil if out is not a terminal that can be drawn on.
func newLiveView(out io.Writer) *liveView {
	columns, lines, is := terminalSize(out)
	if !is || columns < 20 || lines < 5 || os.Getenv("TERM") == "dumb" || runtime.GOOS == "windows" { // where consoles may print the sequences
		return nil
	}
	return &liveView{to: out}
}

// due reports whether it is time to draw.
func (v *liveView) due(now time.Time) bool { return now.Sub(v.at) >= drawEvery }

// draw replaces what is on the screen, in one write, and only if that has changed.
func (v *liveView) draw(r *attempt.RunReply, steps []runStep, last map[string]string, note string, now time.Time) {
	columns, room, _ := terminalSize(v.to)
	lines := liveLines(r, steps, last, note, now, columns-1, room-2)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at = now
	if strings.Join(lines, "\n") == strings.Join(v.drawn, "\n") {
		return
	}
	text := v.back(columns)
	for _, line := range lines {
		text += line + "\x1b[K\n"
	}
	v.drawn = lines
	_, _ = io.WriteString(v.to, text+"\x1b[J") // a terminal that is gone ends the command by its signal
}

// back returns what moves the cursor to the beginning of what is drawn. A terminal that was made narrower has
// wrapped it.
func (v *liveView) back(columns int) string {
	n := 0
	for _, line := range v.drawn {
		n++
		if columns > 0 {
			n += max(0, show.Columns(line)-1) / columns
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\r", n)
}

// Write prints what others have to say above the view, which is drawn again the next time.
func (v *liveView) Write(text []byte) (int, error) {
	columns, _, _ := terminalSize(v.to)
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, err := io.WriteString(v.to, v.back(columns)+"\x1b[J"); err != nil {
		return 0, err
	}
	v.drawn, v.at = nil, time.Time{}
	return v.to.Write(text)
}

// liveLines are a line about the run and those of its steps, at most room lines of columns: steps that are done
// are left out first.
func liveLines(r *attempt.RunReply, steps []runStep, last map[string]string, note string, now time.Time, columns, room int) []string {
	head := []string{inline(r.Workflow), r.State}
	if from, err := time.Parse(time.RFC3339Nano, r.CreatedAt); err == nil {
		head = append(head, max(0, now.Sub(from).Round(time.Second)).String())
	}
	if r.Cost != nil && r.Cost.USD != nil {
		head = append(head, fmt.Sprintf("%.2f USD", *r.Cost.USD))
	}
	if r.Reason != nil && isOpen(r.State) && len(r.Waits) == 0 { // else the rows say it
		head = append(head, inline(*r.Reason))
	}
	if note != "" && isOpen(r.State) {
		head = append(head, note)
	}
	lines := []string{show.Snip(strings.Join(head, "  "), columns)}
	rows, later := runRows(r, steps, last, now)
	table := rowLines(rows, columns)
	total := 0
	for _, of := range table {
		total += len(of)
	}
	if later > 0 {
		total++
	}
	over, hidden := total-(room-1), 0
	if over > 0 {
		over++ // for the line about them
	}
	for _, open := range []bool{false, true} {
		for i, row := range rows {
			if over > 0 && table[i] != nil && row.open == open {
				over -= len(table[i])
				table[i] = nil
				hidden++
			}
		}
	}
	if hidden > 0 {
		lines = append(lines, fmt.Sprintf("(%d not shown)", hidden))
	}
	for _, of := range table {
		lines = append(lines, of...)
	}
	if later > 0 {
		lines = append(lines, fmt.Sprintf("(%d to come)", later))
	}
	return lines
}
