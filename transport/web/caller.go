package web

import "context"

// A Caller says whose call a request is. It is in the context of each HTTP request; the
// SDK keeps that of the request that opened an MCP session in the context of all the
// session's calls.
type Caller struct {
	Identity  string // the name that owns the sessions
	Stateless bool   // there is no MCP session: callers are told apart by their identity
	Remote    bool   // over the network: let go when it has been idle for long
}

// LocalIdentity is the name of callers without a token: whoever started the server, or
// may reach it on loopback.
const LocalIdentity = "local"

type callerKey struct{}

// CallerOf returns the caller of a request, which is local without the network.
func CallerOf(ctx context.Context) Caller {
	if c, ok := ctx.Value(callerKey{}).(*Caller); ok {
		return *c
	}
	return Caller{Identity: LocalIdentity}
}

// WithCaller returns a context with the caller of its request.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, &c)
}
