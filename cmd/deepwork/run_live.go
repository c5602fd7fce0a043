package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"deepwork/session/attempt"
)

// drawEvery spaces the drawings of a liveView.
const drawEvery = 300 * time.Millisecond

// A liveView draws the steps of a run in place. It belongs to one goroutine.
type liveView struct {
	to            io.Writer // the terminal
	columns, room int       // its size
	drawn         int       // lines on the screen
	last          string    // as drawn
	at            time.Time // of the last drawing
}

// newLiveView returns nil if out is not a terminal that can be drawn on.
func newLiveView(out io.Writer) *liveView {
	_, _, is := terminalSize(out)
	if !is || os.Getenv("TERM") == "dumb" || runtime.GOOS == "windows" { // where consoles may print the sequences
		return nil
	}
	return &liveView{to: out}
}

// due reports whether it is time to draw.
func (v *liveView) due(now time.Time) bool { return now.Sub(v.at) >= drawEvery }

// draw replaces what is on the screen, in one write, and only if that has changed.
func (v *liveView) draw(r *attempt.RunReply, last map[string]string, now time.Time) {
	v.at = now
	v.columns, v.room, _ = terminalSize(v.to)
	lines := liveLines(r, last, now, v.room-2)
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(clipColumns(line, v.columns-1) + "\x1b[K\n")
	}
	if text.String() == v.last {
		return
	}
	up := ""
	if v.drawn > 0 {
		up = fmt.Sprintf("\x1b[%dA\r", v.drawn)
	}
	v.last, v.drawn = text.String(), len(lines)
	_, _ = io.WriteString(v.to, up+v.last+"\x1b[J") // a terminal that is gone ends the command by its signal
}

// liveLines are a line about the run and the rows of its steps, at most room of them: what ended first is left
// out first.
func liveLines(r *attempt.RunReply, last map[string]string, now time.Time, room int) []string {
	cost := ""
	if r.Cost != nil && r.Cost.USD != nil {
		cost = fmt.Sprintf("  %.2f USD", *r.Cost.USD)
	}
	took := ""
	if from, err := time.Parse(time.RFC3339Nano, r.CreatedAt); err == nil {
		took = now.Sub(from).Round(time.Second).String()
	}
	head := fmt.Sprintf("%s  %s  %s%s", inline(r.Workflow), r.State, took, cost)
	if r.Reason != nil && isOpen(r.State) && len(r.Waits) == 0 {
		head += "  " + inline(*r.Reason)
	}
	lines := []string{head}
	for _, w := range r.Waits[:min(len(r.Waits), 5)] {
		if w.Command != nil {
			lines = append(lines, "waits for you: "+inline(*w.Command))
		}
	}
	room -= len(lines) - 1
	rows := runRows(r, last, now)
	if over := len(rows) - max(room-2, 1); over > 0 {
		kept := rows[:0]
		hidden := 0
		for _, row := range rows {
			if hidden < over && !isOpen(row.state) && row.state != "limited" {
				hidden++
				continue
			}
			kept = append(kept, row)
		}
		rows = kept[:min(len(kept), max(room-2, 1))]
		lines = append(lines, fmt.Sprintf("(%d more steps)", over))
	}
	for _, row := range rows {
		lines = append(lines, row.text(optional(r.SessionID)))
	}
	return lines
}

// clipColumns cuts a line to a width of a terminal; wide characters take two columns.
func clipColumns(line string, most int) string {
	used := 0
	for i, c := range line {
		if used++; c >= 0x1100 {
			used++
		}
		if used > most {
			return line[:i]
		}
	}
	return line
}
