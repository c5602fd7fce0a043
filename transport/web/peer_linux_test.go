package web

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"

	"deepwork/actor/testkit"

	"golang.org/x/sys/unix"
)

// nobody is a user that is not the one of the test.
const nobody = 65534

// connect opens a connection to l from a socket that the user owns, and returns both ends of it.
func connect(t *testing.T, l net.Listener, family, user int) (client int, server net.Conn) {
	t.Helper()
	addr := l.Addr().(*net.TCPAddr).AddrPort()
	var to unix.Sockaddr = &unix.SockaddrInet4{Port: int(addr.Port()), Addr: [4]byte{127, 0, 0, 1}}
	if family == unix.AF_INET6 {
		to = &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()} // of IPv4, it is mapped
	}
	made := make(chan error, 1)
	go func() {
		if user != os.Geteuid() {
			runtime.LockOSThread() // it ends with the goroutine, since it is another user's
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETFSUID, uintptr(user), 0, 0); errno != 0 {
				made <- errno
				return
			}
		}

		var err error
		if client, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
			err = unix.Connect(client, to)
		}
		made <- err
	}()
	testkit.Must(t, <-made)
	server = testkit.Get(l.Accept()).Must(t)
	t.Cleanup(func() { server.Close() })
	return client, server
}

// The kernel says whose a connection is, and never that one without an owner is root's.
func TestOwnerOfAConnection(t *testing.T) {
	users := []int{os.Geteuid()}
	if os.Geteuid() == 0 {
		users = append(users, nobody)
	} else {
		t.Log("sockets of another user are left out: only root makes them")
	}
	for _, c := range []struct {
		name, listen string
		family       int
	}{
		{"IPv4", "127.0.0.1:0", unix.AF_INET},
		{"IPv6", "[::1]:0", unix.AF_INET6},
		{"IPv4 of a socket of IPv6", "127.0.0.1:0", unix.AF_INET6},
	} {
		l, err := net.Listen("tcp", c.listen)
		if err != nil {
			t.Logf("%s is left out: %v", c.name, err)
			continue
		}
		defer l.Close()
		for _, user := range users {
			client, server := connect(t, l, c.family, user)
			from, to := unmapped(server.RemoteAddr().(*net.TCPAddr)), unmapped(server.LocalAddr().(*net.TCPAddr))
			testkit.Equal(t, int(testkit.Get(ownerOf(from, to)).Must(t)), user)
			unix.Close(client) // the server's end is still open: the kernel keeps the client's, as root's
			testkit.FailsWith(t, testkit.Get(ownerOf(from, to)).Err(), errNoSocket, "%s, closed", c.name)
		}

		// A socket that listens at an address is not one with a connection from there.
		at := l.Addr().(*net.TCPAddr).AddrPort()
		testkit.FailsWith(t, testkit.Get(ownerOf(at, netip.AddrPortFrom(at.Addr(), 1))).Err(), errNoSocket,
			"%s, listening", c.name)
	}
	testkit.True(t, CanKnowPeers(), "the owners of connections are not known")
}
