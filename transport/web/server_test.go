package web

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
	"deepwork/transport/tool"
)

func TestMessagesOfABody(t *testing.T) {
	for body, want := range map[string]int{
		``: 1, `{"id":1}`: 1, `[`: 1, `[1,2]`: 2, ` [{"a":[1,2,{"b":",\","}]},{}]`: 2, `{"a":[1,2]}`: 1,
	} {
		if n := messages([]byte(body)); n != want {
			t.Errorf("%s: %d, want %d", body, n, want)
		}
	}
}

// A slot that is given up while it is waited for goes to the next, and one of the user's is not counted.
func TestSlots(t *testing.T) {
	s := slots{limit: func() int { return 1 }}
	release, _ := s.take(t.Context(), false)
	own, ok := s.take(t.Context(), true)
	if !ok {
		t.Error("the user waits")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := s.take(ctx, true); ok {
		t.Error("a second one of the user is not counted")
	}
	own()
	if _, ok := s.take(t.Context(), true); !ok {
		t.Error("the user waits, though no other connection of theirs is served")
	}
	served := make(chan func(), 1)
	go func() {
		release, _ := s.take(t.Context(), false)
		served <- release
	}()
	release()
	(<-served)()
	if len(s.all) != 0 {
		t.Errorf("%d are taken at the end", len(s.all))
	}
}

// A reply that is being written when its call is over keeps the server, too.
func TestStopWaitsForReplies(t *testing.T) {
	h := &Server{Backend: Backend{InFlight: new(tool.InFlight)}, sockets: new(sockets)}
	session := &sseSession{}
	session.owed.Add(1)
	h.sse.sessions.Store("s", session)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if h.quiet(ctx) {
		t.Error("it does not wait")
	}
	session.owed.Add(-1)
	if !h.quiet(context.Background()) {
		t.Error("it waits for a reply that is written")
	}
}

// A connection beyond those that can be open is accepted when another one has ended.
func TestConnectionsBeyondTheFilesWait(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	s := newSockets(listener, 1, time.Second, func(net.Conn) peer { return peer{} })
	accepted := make(chan net.Conn)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for c, err := s.Accept(); err == nil; c, err = s.Accept() {
			accepted <- c
		}
	}()
	for range 2 {
		c, err := net.Dial("tcp", listener.Addr().String())
		testkit.Must(t, err)
		defer c.Close()
	}
	first := <-accepted
	select {
	case <-accepted:
		t.Error("a second connection is accepted")
	case <-time.After(20 * time.Millisecond):
	}
	first.Close()
	first.Close() // it counts once
	(<-accepted).Close()
	if n := s.open.Load(); n != 0 {
		t.Errorf("%d are open at the end", n)
	}
	testkit.Must(t, s.Close())
	<-ended
}

// The user's own slot goes to the next of the user's requests that wait when it is free again.
func TestTheUsersSlotIsHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slots{limit: func() int { return 1 }}
		first, _ := s.take(t.Context(), true)
		last, ok := s.take(t.Context(), false)
		if !ok {
			t.Fatal("the only slot is not given")
		}
		others := make(chan bool, 2)
		for _, user := range []bool{false, true} {
			go func() { _, ok := s.take(t.Context(), user); others <- ok && user }()
		}
		synctest.Wait()
		first()
		if !<-others {
			t.Error("the slot went to somebody else")
		}
		last()
		<-others
	})
}
