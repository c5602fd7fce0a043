package session

import (
	"context"
	"fmt"
	"os"
	"time"

	"deepwork/actor/process"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/state"
	"deepwork/session/why"
)

// A Caller says who makes a call, and what it may do. It is comparable.
type Caller struct {
	Identity string // the identity of its token; LocalIdentity without a token
	Group    string // whose members share what they make; "" means none
	Owner    bool   // the user, who sees and may do everything
	Rights   Rights
	Channel  string // how the call arrived: one of the constants below
}

// The values of Caller.Channel.
const (
	ChannelStdio    = "stdio"
	ChannelHTTP     = "http"
	ChannelSSE      = "sse"
	ChannelTerminal = "terminal" // a command of this program
	ChannelPage     = "page"     // a page of the web UI
)

// LocalIdentity is the identity of callers without a token.
const LocalIdentity = "local"

// Rights say what a caller may do beyond the calls that are open to every caller.
type Rights = config.Rights

// The rights.
const (
	RightAgents = config.RightAgents
	RightMerge  = config.RightMerge
	RightPerson = config.RightPerson
)

// LocalCaller returns the user as the caller on a channel, without RightPerson, since any local caller may be
// an agent. A command adds that right once it knows that a person is at its terminal.
func LocalCaller(channel string) Caller {
	return Caller{Identity: LocalIdentity, Owner: true, Rights: RightAgents | RightMerge, Channel: channel}
}

// Has reports whether the caller has all of the rights.
func (c Caller) Has(r Rights) bool { return c.Rights&r == r }

// Remote reports whether the call arrived over the network.
func (c Caller) Remote() bool { return c.Channel == ChannelHTTP || c.Channel == ChannelSSE }

type withinKey struct{}

// WithReplyWithin returns a context for a call that must be answered within a time. If its work takes longer,
// the answer says what goes on.
func WithReplyWithin(ctx context.Context, most time.Duration) context.Context {
	return context.WithValue(ctx, withinKey{}, most)
}

// ReplyWithin returns how long a call may wait for its work: as configured, where 0 means no limit, or less
// if WithReplyWithin says so.
func ReplyWithin(ctx context.Context, configured time.Duration) time.Duration {
	most, given := ctx.Value(withinKey{}).(time.Duration)
	if !given || configured > 0 && configured < most {
		return configured
	}
	return most
}

type callerKey struct{}

// CallerOf returns the caller in a context. Outside a call this is the zero Caller, which may do nothing.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	if c == nil {
		return Caller{}
	}
	return *c
}

// WithCaller returns a context with the caller of a call.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, &c)
}

// An AwaitingStep is a step of a session that waits for a person to pass its outputs or, if Review is false,
// to override the review that stopped it.
type AwaitingStep struct {
	SessionID, Step, Goal string
	AttemptID             string // in whose workspace the session is; "" for one of the project
	Review                bool
	Rounds                bool // its rounds are used up: the person says how to go on
	Since                 time.Time
	Why                   why.Why
}

// Command returns what the person runs at a terminal to see the outputs and decide. It contains no verdict,
// since an agent may read it, too.
func (s AwaitingStep) Command() string {
	if s.Review {
		return fmt.Sprintf("deepwork sessions review %s %s", s.SessionID, InShell(s.Step))
	}
	return fmt.Sprintf("deepwork sessions override %s %s --reason TEXT", s.SessionID, InShell(s.Step))
}

// InShell is process.InShell.
func InShell(word string) string { return process.InShell(word) }

// PlaceOf returns the place of a project on this machine, for a store shared with other machines. If the
// installation has no key yet, which identifies the machine, PlaceOf creates it.
func PlaceOf(f *state.Folder) (task.Place, error) {
	key, err := f.Key(true)
	if err != nil {
		return task.Place{}, fmt.Errorf("identifying this machine: %w", err)
	}

	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return task.Place{MachineID: key.ID(), MachineName: host, Root: f.Root}, nil
}
