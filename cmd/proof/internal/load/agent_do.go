package load

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"time"
)

// How the reply to a call is lost.
type loss int

const (
	kept      loss = iota
	dropped        // it came, and the agent did not get it
	cancelled      // the call was given up while it ran
	crashed        // the client was gone while it ran
)

// losing decides whether the reply to the next call is lost, and how; alone tells
// that no other call runs on the connection.
func (a *agent) losing(alone bool) loss {
	if a.Lose == 0 || !a.chance(a.Lose) {
		return kept
	}
	if how := loss(1 + a.below(3)); how != crashed || alone && !a.Stateless {
		return how
	}
	return dropped
}

// toolRead moves nothing, and tells each time how things are.
const toolRead = "get_step"

// do makes a call and decodes its reply. Where the reply is lost, the call is
// made again until it is not, which must give the reply that the lost one was.
func do[R any](ctx context.Context, a *agent, how loss, tool string, args map[string]any) (*R, error) {
	var first *R
	for {
		bounded, cancel := context.WithTimeout(ctx, callWithin)
		c, early := a.client, time.NewTimer(callWithin)
		if how == cancelled || how == crashed {
			crash := how == crashed
			early = time.AfterFunc(time.Duration(a.below(5000))*time.Microsecond, func() {
				if crash {
					c.wire.cut.Store(true)
				}
				cancel()
			})
		}
		began := time.Now()
		text, err := c.call(bounded, tool, args)
		took := time.Since(began)
		early.Stop()
		cancel()
		lost := how
		how = kept
		if lost == crashed {
			if err := a.reconnect(ctx); err != nil {
				return nil, err
			}
		}
		if err != nil {
			_, refused := errors.AsType[*refusal](err)
			if refused || lost == kept || ctx.Err() != nil {
				return nil, err
			}
			a.lost.Add(1)
			continue
		}
		r := new(R)
		if err := json.Unmarshal([]byte(text), r); err != nil {
			return nil, wrongf("a reply that cannot be read", "%s: %v in %.300s", tool, err, text)
		}
		switch {
		case lost != kept:
			a.lost.Add(1)
			first = r
			continue
		case first != nil && tool != toolRead && !sameReply(first, r):
			return nil, wrongf("a repetition with another reply", "%s: the reply was %.1000s, and when the call was repeated %.1000s", tool, shown(first), shown(r))
		}
		a.took.add(tool, took)
		return r, nil
	}
}

// notRepeated are the fields of a reply that are told as they are when it is
// given, and what is said of its being a repetition.
var notRepeated = map[string]bool{"Stack": true, "ResumedWorkflow": true, "ResumedStep": true, "Notice": true}

// sameReply compares what a transition came to.
func sameReply(x, y any) bool {
	a, b := reflect.ValueOf(x).Elem(), reflect.ValueOf(y).Elem()
	for i := range a.NumField() {
		if notRepeated[a.Type().Field(i).Name] {
			continue
		}
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			return false
		}
	}
	return true
}

func shown(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// reconnect connects anew to the same server.
func (a *agent) reconnect(ctx context.Context) error {
	old := a.client
	old.vanish()
	a.crashed = time.Now()
	c, err := connect(ctx, old.server, a.Stateless)
	if err != nil {
		return err
	}
	a.client = c
	return nil
}
