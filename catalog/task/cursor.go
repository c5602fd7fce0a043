package task

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// timeLayout is RFC 3339 in UTC with six decimals, always, so that times sort as text.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// FormatTime writes a time so that times sort as text.
func FormatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

// ParseTime reads what FormatTime wrote.
func ParseTime(s string) (time.Time, error) { return time.Parse(timeLayout, s) }

// maxPage is the most rows that a page has, whatever is asked for.
const maxPage = 100_000

// A Page is a part of a list, newest first.
type Page struct {
	Limit  int    // from 1 to 100,000; what is beyond is taken for the nearest
	Cursor string // as the page before gave it; "" for the first
}

// A Listing is one page that is being read: at most Limit rows that come after a
// row of CreatedAt and ID, in a list ordered by time of creation, newest first, then
// by id. Rows that are added or removed elsewhere do not move that position.
type Listing struct {
	Limit         int
	CreatedAt, ID string

	scope string
}

// Listing decodes the cursor of a page of the list that is named, with its filters.
// A cursor of another list is refused with ErrCursor, since rows that do not belong
// to it would be left out silently.
func (p Page) Listing(list ...string) (Listing, error) {
	sum := sha256.Sum256([]byte(strings.Join(list, "\x00")))
	l := Listing{Limit: min(max(1, p.Limit), maxPage), scope: hex.EncodeToString(sum[:6]), CreatedAt: "9999-12-31T23:59:59.999999Z"}
	if p.Cursor == "" {
		return l, nil
	}
	refused := func(why string) (Listing, error) {
		return l, fmt.Errorf("%w: %q %s; give the cursor that this list's last page came with, with the same arguments, or none to begin anew", ErrCursor, Clip(p.Cursor), why)
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(p.Cursor)
	parts := strings.Split(string(text), " ")
	if err != nil || strings.ContainsAny(p.Cursor, "\r\n") || len(parts) != 4 || parts[0] != "1" {
		return refused("is malformed")
	}
	if parts[1] != l.scope {
		return refused("is of another list")
	}
	l.CreatedAt, l.ID = parts[2], parts[3]
	at, err := ParseTime(l.CreatedAt)
	if err != nil || FormatTime(at) != l.CreatedAt {
		return refused("is malformed")
	}
	if id, err := uuid.Parse(l.ID); err != nil || id.String() != l.ID {
		return refused("is malformed")
	}
	return l, nil
}

// Cut ends a list, of which one row more than the limit was read, at its limit;
// next is the cursor for what was cut off, "" if nothing was.
func Cut[T any](l Listing, rows []T, at func(row T) (createdAt time.Time, id string)) (page []T, next string) {
	if len(rows) <= l.Limit {
		return rows, ""
	}
	createdAt, id := at(rows[l.Limit-1])
	cursor := "1 " + l.scope + " " + FormatTime(createdAt) + " " + id
	return rows[:l.Limit], base64.RawURLEncoding.EncodeToString([]byte(cursor))
}
