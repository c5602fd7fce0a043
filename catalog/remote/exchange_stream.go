package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
)

const (
	// resumes is how often a stream that broke off is taken up again without anything
	// new in it, if it was there briefly each time.
	resumes = 2
	briefly = time.Second
	// resumeAfter is how long to wait before that where the source does not say;
	// minResumeAfter and maxResumeAfter bound what it may say.
	resumeAfter    = time.Second
	minResumeAfter = 250 * time.Millisecond
	maxResumeAfter = time.Minute
)

// follow reads a stream until the answer is there. One that breaks off is taken up
// again where the source has said how. What it returns is as of call.
func (x *exchange) follow(ctx context.Context, resp *http.Response) (*reply, io.ReadCloser, error) {
	broke := errors.New("its answer broke off")
	before := ""
	for again, began := 0, time.Now(); ; {
		brief := true
		if resp != nil {
			answer, err := x.read(ctx, resp.Body)
			if answer != nil || err != nil {
				return answer, resp.Body, err
			}
			resp.Body.Close()
			brief = time.Since(began) < briefly
		}
		// Some sources end a stream again and again, to have it taken up (polling).
		if again++; x.last != before || !brief {
			before, again = x.last, 0
		}
		if x.last == "" || again > resumes {
			return nil, nil, transportError{broke}
		}
		var err error
		if resp, began, err = x.resume(ctx); err != nil {
			// It has begun: how it cannot be reached now is not to be taken for that it
			// never was.
			broke = fmt.Errorf("its answer broke off, and it does not go on with it: %v", err)
		}
		if ctx.Err() != nil {
			return nil, nil, transportError{ctx.Err()}
		}
	}
}

// read reads a stream until the answer is there, or to its end (nil and nil).
func (x *exchange) read(ctx context.Context, body io.Reader) (*reply, error) {
	events := newEventReader(body)
	for {
		e, err := events.next()
		switch {
		case errors.Is(err, errEventTooLarge):
			return nil, transportError{err}
		case ctx.Err() != nil:
			return nil, transportError{ctx.Err()}
		case err != nil:
			return nil, nil
		}
		if e.id != "" {
			x.last = e.id
		}
		if e.retry > 0 {
			x.retry = e.retry
		}
		if len(e.data) == 0 || e.name != "" && e.name != "message" {
			continue
		}
		if answer, err := x.take(ctx, e.data); answer != nil || err != nil {
			return answer, err
		}
	}
}

// resume takes the stream up again, after some time; began is when it was asked for.
// Many sources, those of the Go SDK too, send nothing, not even the headers, before
// there is something to say: that is waited for like the answer to the call.
func (x *exchange) resume(ctx context.Context) (resp *http.Response, began time.Time, err error) {
	after := resumeAfter
	if x.retry > 0 {
		after = min(max(x.retry, minResumeAfter), maxResumeAfter)
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, began, ctx.Err()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, x.wire.endpoint, nil)
	if err != nil {
		return nil, began, err
	}
	req.Header["Accept"] = []string{"text/event-stream"}
	req.Header["Last-Event-Id"] = []string{x.last}
	began = time.Now()
	if resp, err = x.do(req); err != nil {
		return nil, began, err
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		resp.Body.Close()
		return nil, began, errors.New(resp.Status)
	}
	return resp, began, nil
}
