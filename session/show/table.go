package show

import (
	"cmp"
	"slices"
	"strings"

	"deepwork/actor/xslices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// A Column describes a column of a table.
type Column struct {
	Title    string
	Least    int  // minimum width in columns of the screen; 0 means never cut
	State    bool // its cells are words for states, which have colors
	Optional bool // left out if it has no content or the screen is too narrow, the last such column first
	Below    bool // printed below its row if the screen is too narrow
}

// gap is the space between columns.
const gap = 2

// Table prints rows under the titles of their columns, in the width of the screen.
func (s *Screen) Table(columns []Column, rows [][]string) {
	for _, line := range s.lines(columns, rows, s.Width()) {
		s.styled(line + "\n")
	}
}

// lines returns the lines of a table in a width; 0 means no limit.
func (s *Screen) lines(columns []Column, rows [][]string, limit int) []string {
	shown := make([]int, 0, len(columns)) // indexes of columns
	widths := make([]int, len(columns))
	cells := make([][]string, len(rows))
	for i, c := range columns {
		widths[i] = len(c.Title)
		content := !c.Optional
		for n, row := range rows {
			cell := OneLine(row[i], maxCell)
			content = content || cell != ""
			cell = cmp.Or(cell, "-")
			cells[n] = append(cells[n], cell)
			// counted as text.Snip does: more than an emoji of several characters takes
			widths[i] = max(widths[i], Columns(cell))
		}
		if content {
			shown = append(shown, i)
		}
	}

	below := -1
	if limit > 0 {
		shown, below = choose(columns, widths, shown, limit)
		shrink(columns, widths, shown, limit)
	}
	return s.render(columns, widths, shown, below, cells)
}

// maxCell limits the content of one cell.
const maxCell = 300

// choose returns the columns that fit side by side, and the one that is printed below, or -1.
func choose(columns []Column, widths, shown []int, limit int) (fits []int, below int) {
	for below = -1; total(shown, func(i int) int { return least(columns[i], widths[i]) }) > limit; {
		at := slices.IndexFunc(shown, func(i int) bool { return columns[i].Below })
		if at >= 0 {
			below = shown[at]
		} else {
			for n, i := range shown {
				if columns[i].Optional {
					at = n
				}
			}
		}
		if at < 0 {
			break
		}
		shown = slices.Delete(shown, at, at+1)
	}
	return shown, below
}

// shrink makes the widest columns narrower until all fit, as far as possible.
func shrink(columns []Column, widths, shown []int, limit int) {
	for total(shown, func(i int) int { return widths[i] }) > limit {
		widest := -1
		for _, i := range shown {
			if widths[i] > least(columns[i], widths[i]) && (widest < 0 || widths[i] >= widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// least returns the width down to which a column can be cut.
func least(c Column, width int) int {
	if c.Least == 0 {
		return width
	}
	return min(width, max(c.Least, len(c.Title)))
}

func total(shown []int, width func(int) int) int {
	sum := (len(shown) - 1) * gap
	for _, i := range shown {
		sum += width(i)
	}
	return sum
}

// render returns the lines of the columns in these widths.
func (s *Screen) render(columns []Column, widths, shown []int, below int, cells [][]string) (lines []string) {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatDefault
	style.Box.PaddingLeft, style.Box.PaddingRight = "", strings.Repeat(" ", gap)
	t.SetStyle(style)
	t.SuppressTrailingSpaces()

	row := func(cell func(i int) string) table.Row {
		return xslices.Map(shown, func(i int) any { return cell(i) })
	}
	t.AppendRow(row(func(i int) string { return s.paint(strong, columns[i].Title) }))
	for _, c := range cells {
		t.AppendRow(row(func(i int) string {
			cell := text.Snip(c[i], widths[i], "…")
			if columns[i].State {
				cell = s.state(cell)
			}
			return cell
		}))
	}

	for n, line := range strings.Split(t.Render(), "\n") {
		lines = append(lines, line)
		if below >= 0 && n > 0 {
			lines = append(lines, "  "+cells[n-1][below])
		}
	}
	return lines
}
