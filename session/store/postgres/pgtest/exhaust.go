package pgtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
)

// Exhaust takes all remaining connections of a URL's server, until release is called. The server must not ask
// for a password.
func Exhaust(raw string) (release func(), err error) {
	network, addr := address(raw)
	var held []net.Conn
	release = func() {
		for _, c := range held {
			c.Close()
		}
	}
	for range 1000 {
		c, err := net.Dial(network, addr)
		if errors.Is(err, syscall.EAGAIN) { // so many connections are waiting that the system takes no more
			return release, nil
		}
		if err != nil {
			release()
			return nil, err
		}

		held = append(held, c)
		kind := make([]byte, 1)
		if _, err = c.Write(startup(raw)); err == nil {
			_, err = io.ReadFull(c, kind)
		}
		if err != nil || kind[0] == 'E' {
			return release, nil
		}
	}

	release()
	return nil, fmt.Errorf("the server takes more than %d connections", len(held))
}

// startup is the first message of a client.
func startup(raw string) []byte {
	user := "postgres"
	if u, err := url.Parse(raw); err == nil && u.User.Username() != "" {
		user = u.User.Username()
	}
	body := "\x00\x03\x00\x00user\x00" + user + "\x00database\x00postgres\x00\x00"
	return append(binary.BigEndian.AppendUint32(nil, uint32(4+len(body))), body...)
}
