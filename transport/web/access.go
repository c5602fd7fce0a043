package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"deepwork/catalog/config"
)

// access decides who may call. Tokens come from the token file and the config, and are read for
// each request.
type access struct {
	file     *tokenFile // nil if none was given
	loopback bool       // the server can only be reached from this machine
}

// check refuses to serve if anybody could call: off loopback without a token.
func (a *access) check(address string, settings config.HTTP) error {
	if a.loopback || a.file != nil || len(settings.Tokens) > 0 {
		return nil
	}
	return fmt.Errorf("%s can be reached from other machines, and there is no token: whoever reaches it could act as you. "+
		"Run deepwork token new NAME and give the line that it prints to stderr by --token-file, or under http.tokens in your own config; "+
		"or leave --host at 127.0.0.1", address)
}

// caller returns the identity of a request, or an error for its sender and whether it had a token.
func (a *access) caller(r *http.Request, settings config.HTTP) (identity string, given bool, err error) {
	tokens := settings.Tokens
	if a.file != nil {
		tokens = slices.Concat(tokens, a.file.tokens())
	}
	if len(tokens) == 0 && a.file == nil && a.loopback {
		return LocalIdentity, false, nil
	}
	headers := r.Header.Values("Authorization")
	if len(headers) > 1 {
		// A proxy may have checked the other one.
		return "", false, errors.New("there are several Authorization headers: send one")
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		return "", false, errors.New("a bearer token is needed: send it as Authorization: Bearer TOKEN (deepwork token new makes one)")
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false, errors.New("the Authorization header is not a bearer token: send Authorization: Bearer TOKEN")
	}
	name, ok := identify(tokens, strings.TrimSpace(token))
	if !ok {
		return "", true, errors.New("the bearer token is not known here: it was mistyped or withdrawn; ask whoever runs the server for a new one")
	}
	return name, true, nil
}

// authenticate admits callers and puts their identity into the context of the request.
func (h *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		identity, given, err := h.access.caller(r, h.Settings(r.Context()))
		if err != nil {
			challenge := `Bearer realm="deepwork"`
			if given {
				challenge += `, error="invalid_token"`
			}
			w.Header().Set("WWW-Authenticate", challenge)
			h.refuse(w, r, http.StatusUnauthorized, refusedToken, err.Error())
			return
		}
		next.ServeHTTP(w, r.WithContext(WithCaller(r.Context(), Caller{Identity: identity, Remote: true})))
	})
}

// A Caller is the caller of a request. It is in the context of each HTTP request; the SDK keeps
// that of the request that opened an MCP session in the context of all calls of the session.
type Caller struct {
	Identity  string // the name that owns the sessions
	Stateless bool   // there is no MCP session: callers are distinguished by identity
	Remote    bool   // over the network: disconnected when idle for long
}

// LocalIdentity is the name of callers without a token: the user who started the server, or anybody
// on loopback.
const LocalIdentity = "local"

type callerKey struct{}

// CallerOf returns the caller of a request; without a network it is local.
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
