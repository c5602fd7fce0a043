package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/state"
)

// access decides who may call. Tokens come from the token file and the config, and are read for
// each request.
type access struct {
	file     *tokenFile // nil if none was given
	loopback bool       // the server can only be reached from this machine
	peers    bool       // the owners of connections can be known
	local    session.Caller
	token    func(make bool) (string, error) // of the local caller
}

// check refuses to serve without a token off loopback, where anybody could call, and with hosts
// (--allowed-host), which are for callers behind a proxy, who need one. On loopback, it makes sure
// that the user has a token if one is needed.
func (a *access) check(address string, hosts []string, settings config.HTTP, logger *slog.Logger) error {
	const remedy = "Run deepwork token new NAME and give the line that it prints to stderr by --token-file, or under " +
		"http.tokens in your own config; or "
	switch {
	case a.file != nil || len(settings.Tokens) > 0:
		return nil
	case a.loopback && len(hosts) > 0:
		return fmt.Errorf("--allowed-host %s is for callers that come through a proxy, who need a token, and there "+
			"is none. "+remedy+
			"leave out --allowed-host", hosts[0])
	case a.loopback && a.peers:
		logger.Info("there are no tokens: only your own programs on this machine may call; behind a proxy, tokens " +
			"are needed (deepwork token new)")
		return nil
	case a.loopback:
		if _, err := a.token(true); err != nil {
			return fmt.Errorf("a token is needed, since %w: %w", errNoPeers, err)
		}
		logger.Info("clients need the token that deepwork token show prints", "reason", errNoPeers)
		return nil
	}
	return fmt.Errorf("%s can be reached from other machines, and there is no token: anybody who reaches it could "+
		"act as you. "+remedy+
		"leave --host at 127.0.0.1", address)
}

// caller returns the caller of a request, or an error for its sender and whether it had a token.
func (a *access) caller(r *http.Request, settings config.HTTP) (who session.Caller, given bool, err error) {
	needed := errors.New("a bearer token is needed: send it as Authorization: Bearer TOKEN (deepwork token new " +
		"makes one)")
	if _, users := a.tokens(settings); users {
		foreign := notOwner(r)
		if foreign == nil {
			return a.local, false, nil
		}
		needed = foreign
	}

	headers := r.Header.Values("Authorization")
	if len(headers) > 1 {
		// A proxy may have checked the other one.
		return who, false, errors.New("there are several Authorization headers: send one")
	}

	header := r.Header.Get("Authorization")
	if header == "" {
		return who, false, needed
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return who, false,
			errors.New("the Authorization header is not a bearer token: send Authorization: Bearer TOKEN")
	}
	who, err = a.holder(hashOf(strings.TrimSpace(token)), settings)
	if errors.Is(err, state.ErrMissing) {
		err = needed
	}
	return who, err == nil || errors.Is(err, errUnknownToken), err
}

// tokens returns the tokens of callers, and whether only the user may call.
func (a *access) tokens(settings config.HTTP) (all []config.Token, users bool) {
	all = settings.Tokens
	if a.file != nil {
		all = slices.Concat(all, a.file.tokens())
	}
	return all, len(all) == 0 && a.file == nil && a.loopback
}

var errUnknownToken = errors.New("the bearer token is not known here: it was mistyped or withdrawn; ask the person " +
	"who runs the server for a new one")

// holder returns the caller that has the token with a hash. The error is errUnknownToken, or
// state.ErrMissing if the user has no token.
func (a *access) holder(hash string, settings config.HTTP) (session.Caller, error) {
	all, users := a.tokens(settings)
	if users {
		own, err := a.token(!a.peers)
		if err != nil {
			return session.Caller{}, err
		}
		all = []config.Token{{Name: a.local.Identity, SHA256: hashOf(own)}}
	}
	t, ok := identify(all, hash)
	switch {
	case !ok:
		return session.Caller{}, errUnknownToken
	case users:
		return a.local, nil
	}

	return session.Caller{Identity: t.Name, Group: t.Group, Rights: t.Rights}, nil
}

// authenticate admits callers and puts them into the context of the request. The SDK keeps the
// context of the request that opened an MCP session for all calls of the session.
func (h *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, given, err := h.access.caller(r, h.LastSettings()) // guard has just asked for them
		if err != nil {
			challenge := `Bearer realm="deepwork"`
			if given {
				challenge += `, error="invalid_token"`
			}
			w.Header().Set("WWW-Authenticate", challenge)

			reason := refusedToken
			if _, foreign := errors.AsType[errForeign](err); foreign {
				reason = refusedPeer
			}
			h.refuse(w, r, http.StatusUnauthorized, reason, err.Error())
			return
		}
		who.Channel = h.options.Transport
		next.ServeHTTP(w, r.WithContext(session.WithCaller(r.Context(), who)))
	})
}

type statelessKey struct{}

// IsStateless reports whether a request belongs to no MCP session: such callers are distinguished
// by their identity.
func IsStateless(ctx context.Context) bool { return ctx.Value(statelessKey{}) != nil }

// WithStateless returns the context of a request that belongs to no MCP session.
func WithStateless(ctx context.Context) context.Context {
	return context.WithValue(ctx, statelessKey{}, true)
}

// A peer is the user that owns the client's end of a connection on loopback.
type peer struct {
	user uint32
	err  error // why it is not known
}

// errNoPeers is why the owner of a connection is not known on a system that does not tell it.
var errNoPeers = errors.New("this system does not tell which user a connection is of")

// errForeign refuses a request that came through a proxy, or by a connection that is not known to be
// the user's on a system that can tell.
type errForeign struct{ error }

// howToGetToken tells a caller that is not the user what to do.
const howToGetToken = "the person who runs the server makes one with deepwork token new NAME and starts the server " +
	"with --token-file; send it as Authorization: Bearer TOKEN"

// peerOf returns the owner of the client's end of a connection that was just accepted.
func peerOf(conn net.Conn) peer {
	client, ok := conn.RemoteAddr().(*net.TCPAddr)
	server, ok2 := conn.LocalAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return peer{err: errNoPeers}
	}
	user, err := ownerOf(unmapped(client), unmapped(server))
	return peer{user, err}
}

func unmapped(a *net.TCPAddr) netip.AddrPort {
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}

// refused returns why a connection without a token is refused, or nil: only the user of this process
// and root, for the relays of containers, act as the user.
func (p peer) refused() error {
	switch {
	case errors.Is(p.err, errNoPeers):
		return fmt.Errorf("a bearer token is needed, since %w: send the one that deepwork token show prints, as "+
			"Authorization: Bearer TOKEN", p.err)
	case p.err != nil:
		return errForeign{fmt.Errorf("it is not known whose connection this is (%w): connect again", p.err)}
	case p.user == 0 || int(p.user) == os.Geteuid():
		return nil
	}
	return errForeign{fmt.Errorf("this connection is of another user of this machine, with the id %d, who needs a "+
		"token: %s", p.user, howToGetToken)}
}

// A proxy or a tunnel on this machine connects as its own user, no matter who sent the request that
// it forwards. Most can be recognized: they add headers, or pass on the Host that the sender used.
// One that does neither looks like a program of the user, so the documentation asks for tokens behind
// any proxy.

// proxyHeaders are the beginnings of the names of headers that proxies and tunnels add, in canonical
// form.
var proxyHeaders = []string{
	"Forwarded", "X-Forward", "Via",
	"X-Real-", "X-Original-", "X-Envoy-",
	"Cf-", "Cdn-", // Cloudflare
	"Ngrok-", "X-Ngrok-",
	"Tailscale-",
}

// sentByProxy returns the name of a header that shows that a request came through a proxy, or "".
func sentByProxy(r *http.Request) string {
	for name := range r.Header {
		// Many proxies have their own header for the sender's address: True-Client-IP, Fly-Client-IP.
		if strings.HasSuffix(name, "-Ip") ||
			slices.ContainsFunc(proxyHeaders, func(begin string) bool { return strings.HasPrefix(name, begin) }) {
			return name
		}
	}

	if !IsLoopback(hostOf(r.Host)) { // any port will do: a forwarded port may have another number
		return "Host"
	}

	return ""
}

// notOwner returns why a request without a token is not taken for the user's, or nil.
func notOwner(r *http.Request) error {
	if header := sentByProxy(r); header != "" {
		return errForeign{fmt.Errorf("this request came through a proxy, as its header %s shows, and needs a token, "+
			"since it is not known who sent it: %s",
			jsontext.Clip(header, 100), howToGetToken)}
	}
	if c, _ := r.Context().Value(socketKey{}).(*socket); c != nil {
		return c.peer.refused()
	}
	return peer{err: errNoPeers}.refused()
}
