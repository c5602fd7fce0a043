package task

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// requestsKept is for how long a request_id is known, and newestKept how many are
// known however old they are said to be: a clock that was set forward between a
// call and its repetition must not have it done twice.
const (
	requestsKept = 30 * 24 * time.Hour
	newestKept   = 100
)

// A Request names a call, so that its repetition gives the same result: RequestID
// is scoped to Identity and Tool, and is known for 30 days; the newest 100 of a
// board for longer. The zero value is a call without a name.
type Request struct{ Identity, Tool, RequestID, ArgsDigest string }

// FindRequest returns the result (an id) of the call that was made before under
// this name, "" where there was none, or ErrReused (DESIGN "Retries").
func (b *Board) FindRequest(ctx context.Context, r Request) (result string, err error) {
	err = b.read(ctx, "looking up a request_id", func(t tx) error {
		result, err = t.findRequest(r)
		return err
	})
	return result, err
}

func (t tx) findRequest(r Request) (result string, err error) {
	if r.RequestID == "" {
		return "", nil
	}
	var digest string
	found, err := t.one(`SELECT args_digest, result FROM requests
		WHERE identity = ? AND tool = ? AND request_id = ?`,
		[]any{r.Identity, r.Tool, r.RequestID}, &digest, &result)
	if err != nil || !found {
		return "", err
	}
	if digest != r.ArgsDigest {
		return "", fmt.Errorf("request_id %q of %s: %w: give another request_id, or the same arguments as before", clip(r.RequestID), r.Tool, ErrReused)
	}
	return result, nil
}

// keepRequest records the result of a call, and forgets what is too old. Rows have
// the numbers of their order, whatever the clock said.
func (t tx) keepRequest(r Request, result, since, now string) error {
	if r.RequestID == "" {
		return nil
	}
	if _, err := t.exec(`DELETE FROM requests WHERE created_at < ? AND rowid <= (SELECT max(rowid) FROM requests) - ?`, since, newestKept-1); err != nil {
		return err
	}
	_, err := t.exec(`INSERT INTO requests (identity, tool, request_id, args_digest, result, created_at) VALUES (?, ?, ?, ?, ?, ?)`,
		r.Identity, r.Tool, r.RequestID, r.ArgsDigest, result, now)
	return err
}

// makeOnce makes what a call asks for, or finds what the same call made before.
func (b *Board) makeOnce(t tx, r Request, create func() (id string, err error)) (id string, err error) {
	id, err = t.findRequest(r)
	if err != nil || id != "" {
		return id, err
	}
	if id, err = create(); err != nil {
		return "", err
	}
	return id, t.keepRequest(r, id, format(b.now().Add(-requestsKept)), b.stamp())
}

func newID() (string, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return "", fmt.Errorf("making an id: %w", err)
	}
	return id.String(), nil
}
