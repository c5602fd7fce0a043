package task

import (
	"fmt"
	"time"
)

// layout is RFC 3339 in UTC with six decimals, always: times of it sort as text.
const layout = "2006-01-02T15:04:05.000000Z"

func format(t time.Time) string { return t.UTC().Format(layout) }

func parse(s string) (time.Time, error) { return time.Parse(layout, s) }

// A moment scans a time.
type moment struct{ to *time.Time }

// Scan implements sql.Scanner.
func (m moment) Scan(v any) error {
	s, is := v.(string)
	if !is {
		return fmt.Errorf("a time is %T, and is to be text", v)
	}
	t, err := parse(s)
	*m.to = t
	return err
}

// A perhaps scans a time that may be null.
type perhaps struct{ to **time.Time }

// Scan implements sql.Scanner.
func (p perhaps) Scan(v any) error {
	if v == nil {
		*p.to = nil
		return nil
	}
	var t time.Time
	err := moment{&t}.Scan(v)
	*p.to = &t
	return err
}
