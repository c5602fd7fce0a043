package remote

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"testing/iotest"
)

// Whatever a source sends for a stream of events, it is taken apart without more in
// it than was sent, the same whether it comes in one piece or byte by byte; and what
// was taken from it, written anew, is taken for the same.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		"data: {}\n\n", "event: message\r\nid: 1\r\nretry: 10\r\ndata: a\r\ndata: b\r\n\r\n", ": c\n\ndata\n\n", "data:x",
		"id: a\x00b\ndata: x\n\n", "retry: 99999999999\ndata:\n\n", "\n\n\n", "data: a\rb\n\n", "event: x\n\ndata: y\n\n",
	} {
		f.Add([]byte(s))
	}
	all := func(t *testing.T, in io.Reader, most int) (events []event) {
		for r := newEventReader(in); ; {
			e, err := r.next()
			if err == io.EOF {
				return events
			}
			if err != nil {
				t.Fatal(err)
			}
			if events = append(events, e); len(events) > most {
				t.Fatalf("more than %d events", most)
			}
		}
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		events := all(t, bytes.NewReader(sent), len(sent))
		var again bytes.Buffer
		size := 0
		for _, e := range events {
			size += len(e.data)
			if e.name != "" {
				fmt.Fprintf(&again, "event: %s\n", e.name)
			}
			if e.id != "" {
				fmt.Fprintf(&again, "id: %s\n", e.id)
			}
			if e.retry > 0 {
				fmt.Fprintf(&again, "retry: %d\n", e.retry.Milliseconds())
			}
			for line := range bytes.SplitSeq(e.data, []byte("\n")) {
				fmt.Fprintf(&again, "data: %s\n", line)
			}
			again.WriteByte('\n')
		}
		if size > len(sent) {
			t.Errorf("%d bytes of data in %d", size, len(sent))
		}
		slowly := all(t, iotest.OneByteReader(bytes.NewReader(sent)), len(sent))
		second := all(t, &again, again.Len())
		for name, other := range map[string][]event{"byte by byte": slowly, "again": second} {
			if fmt.Sprint(other) != fmt.Sprint(events) {
				t.Errorf("%s:\n%+v\n%+v", name, other, events)
			}
		}
	})
}
