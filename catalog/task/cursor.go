package task

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// A position is where a page ended: after this row, in a list that is ordered by
// created_at, newest first, then by id. Rows that are added or removed elsewhere
// do not move it.
type position struct{ createdAt, id string }

// first is the position before all rows: later than any time.
var first = position{createdAt: "9999-12-31T23:59:59.999999Z"}

// scope names a list, so that a cursor of another is told from its own: what
// does not belong to it would leave rows out silently.
func scope(list ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(list, "\x00")))
	return hex.EncodeToString(sum[:6])
}

// encode makes a cursor, which has no meaning for callers.
func (p position) encode(scope string) string {
	return base64.RawURLEncoding.EncodeToString([]byte("1 " + scope + " " + p.createdAt + " " + p.id))
}

// decode reads a cursor of a list; "" is its beginning.
func decode(cursor, scope string) (position, error) {
	if cursor == "" {
		return first, nil
	}
	refused := func(why string) (position, error) {
		return position{}, fmt.Errorf("%w: %q %s; give the cursor that this list's last page came with, with the same arguments, or none to begin anew", ErrCursor, clip(cursor), why)
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || strings.ContainsAny(cursor, "\r\n") {
		return refused("is malformed")
	}
	parts := strings.Split(string(text), " ")
	if len(parts) != 4 || parts[0] != "1" {
		return refused("is malformed")
	}
	if parts[1] != scope {
		return refused("is of another list")
	}
	p := position{parts[2], parts[3]}
	if at, err := parse(p.createdAt); err != nil || format(at) != p.createdAt {
		return refused("is malformed")
	}
	if id, err := uuid.Parse(p.id); err != nil || id.String() != p.id {
		return refused("is malformed")
	}
	return p, nil
}

// clip shortens a value for a message.
func clip(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// maxPage is how many rows a page has at most, whatever is asked for.
const maxPage = 100_000

// A listing is one page that is being read.
type listing struct {
	scope string
	limit int
	from  position
}

func (p Page) listing(list ...string) (listing, error) {
	l := listing{scope: scope(list...), limit: min(max(1, p.Limit), maxPage)}
	var err error
	l.from, err = decode(p.Cursor, l.scope)
	return l, err
}

// args are the arguments of a query whose condition is (project or the like, then)
// created_at <= ? AND (created_at < ? OR id > ?) … LIMIT ?: one row more than the
// page has tells whether there is a next one.
func (l listing) args(before ...any) []any {
	return append(before, l.from.createdAt, l.from.createdAt, l.from.id, l.limit+1)
}

// cut ends a list at its limit; next is the cursor of what was cut off.
func cut[T any](l listing, rows []T, at func(row T) position) (page []T, next string) {
	if len(rows) <= l.limit {
		return rows, ""
	}
	return rows[:l.limit], at(rows[l.limit-1]).encode(l.scope)
}
