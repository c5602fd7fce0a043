package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
)

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
const howToGetToken = "the person who runs the server makes one with deepwork token new NAME and starts the server with --token-file; send it as Authorization: Bearer TOKEN"

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

// peerFrom returns the peer of the connection of a request.
func peerFrom(ctx context.Context) peer {
	if c, _ := ctx.Value(socketKey{}).(*socket); c != nil {
		return c.peer
	}
	return peer{err: errNoPeers}
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
		return fmt.Errorf("a bearer token is needed, since %w: send the one that deepwork token show prints, as Authorization: Bearer TOKEN", p.err)
	case p.err != nil:
		return errForeign{fmt.Errorf("it is not known whose connection this is (%w): connect again", p.err)}
	case p.user == 0 || int(p.user) == os.Geteuid():
		return nil
	}
	return errForeign{fmt.Errorf("this connection is of another user of this machine, with the id %d, who needs a token: %s", p.user, howToGetToken)}
}
