package web

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// errNoSocket is why the owner of a connection is not known whose client has closed its end: the
// kernel reports such sockets as root's.
var errNoSocket = errors.New("its client has closed it")

// CanKnowPeers reports whether the owners of connections can be found out: the kernel may have no sock_diag,
// or a sandbox may forbid it.
func CanKnowPeers() bool {
	none := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	_, err := ownerOf(none, none)
	return errors.Is(err, errNoSocket)
}

// Layout of the messages of sock_diag (linux/inet_diag.h).
const (
	netlinkHeader = 16
	diagRequest   = 56 // struct inet_diag_req_v2
	diagReply     = 72 // struct inet_diag_msg
	tcpListen     = 10
)

// ownerOf asks the kernel for the user that owns the socket with the local address client and the remote
// address server, both without a mapping to IPv6. It does not block.
func ownerOf(client, server netip.AddrPort) (uint32, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)

	timeout := unix.NsecToTimeval(int64(time.Second)) // the kernel answers at once
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return 0, err
	}

	native := binary.NativeEndian
	request := make([]byte, netlinkHeader+diagRequest)
	native.PutUint32(request[0:], uint32(len(request)))
	native.PutUint16(request[4:], unix.SOCK_DIAG_BY_FAMILY)
	native.PutUint16(request[6:], unix.NLM_F_REQUEST)
	body := request[netlinkHeader:]
	body[0], body[1] = unix.AF_INET, unix.IPPROTO_TCP
	if client.Addr().Is6() {
		body[0] = unix.AF_INET6
	}
	native.PutUint32(body[4:], ^uint32(0)) // any state
	id := body[8:]
	binary.BigEndian.PutUint16(id[0:], client.Port())
	binary.BigEndian.PutUint16(id[2:], server.Port())
	copy(id[4:20], client.Addr().AsSlice())
	copy(id[20:36], server.Addr().AsSlice())
	copy(id[40:48], "\xff\xff\xff\xff\xff\xff\xff\xff") // no cookie

	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}

	reply := make([]byte, 4096)
	n, from, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return 0, err
	}
	if kernel, ok := from.(*unix.SockaddrNetlink); !ok || kernel.Pid != 0 {
		return 0, errors.New("an answer that is not the kernel's")
	}
	reply = reply[:n]
	if n < netlinkHeader+4 {
		return 0, fmt.Errorf("an answer of %d bytes", n)
	}
	if native.Uint16(reply[4:]) == unix.NLMSG_ERROR {
		if errno := unix.Errno(-int32(native.Uint32(reply[netlinkHeader:]))); errno != unix.ENOENT {
			return 0, errno
		}
		return 0, errNoSocket
	}
	if n < netlinkHeader+diagReply || native.Uint16(reply[4:]) != unix.SOCK_DIAG_BY_FAMILY {
		return 0, fmt.Errorf("an answer of %d bytes", n)
	}

	// The kernel reads the user before the inode, so one with an inode has its true user. It falls
	// back to a socket that listens at the client's address.
	found := reply[netlinkHeader:]
	inode := native.Uint32(found[diagReply-4:])
	if found[1] == tcpListen || inode == 0 {
		return 0, errNoSocket
	}
	return native.Uint32(found[diagReply-8:]), nil
}
