package main

import (
	"fmt"
	"strings"
	"time"

	"deepwork/session/show"
)

// The columns of a table of steps.
const (
	stepColumn = iota
	executorColumn
	stateColumn
	tookColumn
	costColumn
	columnsOfRow

	widestName = 24 // of a step or an executor
	leastLast  = 24 // columns for the last line, or it gets a line of its own
)

func (r *runRow) cells() (cells [columnsOfRow]string) {
	step := inline(r.step)
	if r.tries > 1 {
		step += fmt.Sprintf(" (%d)", r.tries)
	}
	if step = show.Snip(step, widestName); r.group != 0 {
		step = string(r.group) + " " + step
	}
	step = strings.Repeat("  ", r.depth) + step
	cells[stepColumn], cells[executorColumn], cells[stateColumn] = step, show.Snip(inline(r.executor), widestName), r.state
	if r.took > 0 {
		cells[tookColumn] = r.took.Round(time.Second).String()
	}
	if r.cost != nil {
		cells[costColumn] = fmt.Sprintf("%.2f USD", *r.cost)
	}
	return cells
}

// rowLines returns the lines of a table, those of each row together. They are at most columns wide, unless that
// is 0.
func rowLines(rows []*runRow, columns int) [][]string {
	all := make([][columnsOfRow]string, len(rows))
	var widths [columnsOfRow]int
	used := 0
	for i, r := range rows {
		all[i] = r.cells()
		for c, text := range all[i] {
			widths[c] = max(widths[c], show.Columns(text))
		}
	}
	for _, w := range widths {
		if w > 0 {
			used += w + 2
		}
	}
	var table [][]string
	for i, r := range rows {
		var line strings.Builder
		for c, text := range all[i] {
			gap := strings.Repeat(" ", widths[c]-show.Columns(text))
			switch {
			case widths[c] == 0:
			case c == tookColumn || c == costColumn:
				line.WriteString(gap + text + "  ")
			default:
				line.WriteString(text + gap + "  ")
			}
		}
		lines, last := []string{line.String()}, inline(r.last)
		switch {
		case columns == 0 || columns-used >= leastLast:
			lines[0] += last
		case r.open && last != "":
			lines = append(lines, "    "+last)
		}
		for i, text := range lines {
			lines[i] = show.Snip(strings.TrimRight(text, " "), columns)
		}
		table = append(table, lines)
	}
	return table
}
