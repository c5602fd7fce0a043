package task

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"deepwork/catalog/cursor"
)

// timeLayout is RFC 3339 in UTC with six decimals, always, so that times sort as text.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// FormatTime writes a time so that times sort as text.
func FormatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

// ParseTime reads what FormatTime wrote.
func ParseTime(s string) (time.Time, error) { return time.Parse(timeLayout, s) }

// maxPage is the maximum number of rows of a page, whatever is requested.
const maxPage = 100_000

// A Page is a part of a list, newest first.
type Page struct {
	Limit  int    // from 1 to 100,000; other values are replaced by the nearest
	Cursor string // from the previous page; "" for the first
}

// A Listing is one page being read: at most Limit rows after the row of CreatedAt and ID, in a list
// ordered by time of creation, newest first, then by id. Adding or removing other rows does not
// move that position.
type Listing struct {
	Limit         int
	CreatedAt, ID string

	list cursor.List
}

// Listing decodes the cursor of a page of the named list, with its filters. A cursor of another
// list is refused with ErrCursor, since matching rows would be left out silently.
func (p Page) Listing(list ...string) (Listing, error) {
	sum := sha256.Sum256([]byte(strings.Join(list, "\x00")))
	l := Listing{Limit: min(max(1, p.Limit), maxPage), CreatedAt: "9999-12-31T23:59:59.999999Z", list: cursor.List(fmt.Sprintf("1 %x ", sum[:6]))}
	if p.Cursor == "" {
		return l, nil
	}
	position, ok := l.list.Decode(p.Cursor)
	l.CreatedAt, l.ID, _ = strings.Cut(position, " ")
	at, _ := ParseTime(l.CreatedAt)
	id, _ := uuid.Parse(l.ID)
	if !ok || FormatTime(at)+" "+id.String() != position { // also where one of them cannot be parsed
		return l, fmt.Errorf("%w: %q is malformed or of another list; give the cursor that this list's last page came with, with the same arguments, or none to start from the beginning", ErrCursor, Clip(p.Cursor))
	}
	return l, nil
}

// Cut cuts a list, of which one row more than the limit was read, at its limit; next is the cursor
// for the rest, or "" if nothing was cut off.
func Cut[T any](l Listing, rows []T, at func(row T) (createdAt time.Time, id string)) (page []T, next string) {
	if len(rows) <= l.Limit {
		return rows, ""
	}
	createdAt, id := at(rows[l.Limit-1])
	return rows[:l.Limit], l.list.Encode(FormatTime(createdAt) + " " + id)
}
