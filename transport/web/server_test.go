package web

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/transport/tool"
	"deepwork/transport/wire"
)

func TestInspect(t *testing.T) {
	for body, want := range map[string]struct {
		n     int
		fault bool
	}{
		``: {0, false}, `{"id":1}`: {1, false}, `[`: {0, false}, `[]`: {0, false}, `[1,2]`: {0, false},
		`[{"a":[1,2,{"b":",\","}]},{}]`: {2, false},
		`[{"method":"m","id":1},{"method":"m","id":"1"},{"method":"m"},{"method":"m"}]`: {4, false},
		`[{"id":1,"result":{}},{"method":"m","id":1}]`:                                  {2, false},
		`{"id":1.5}`: {0, true}, `{"id":null}`: {1, false}, `{"id":"1.5"}`: {1, false}, `{"ID":1.5}`: {1, false},
		`{"id":1}{"id":2}`: {0, true}, "{\"id\":1}\n": {1, false}, `7`: {0, false}, `{`: {0, true},
		`[{"method":"m","id":1.5}]`: {0, true}, `[{"id":1}][]`: {0, false},
		`[{"method":"m","id":1},{"method":"m","id":1.0}]`: {0, true},
		"[" + strings.Repeat("1,", wire.MaxBatch) + "1]":  {0, true},
	} {
		if n, fault := inspect([]byte(body)); n != want.n || (fault != "") != want.fault {
			t.Errorf("%s: %d, %q", jsontext.Clip(body, 80), n, fault)
		}
	}
}

// A reply that is being written when its call is over keeps the server, too.
func TestStopWaitsForReplies(t *testing.T) {
	h := &Server{Backend: Backend{InFlight: new(tool.InFlight)}}
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

// There are never more connections than leave files for all else.
func TestConnectionsLeaveFiles(t *testing.T) {
	var log bytes.Buffer
	settings := func() config.HTTP { return config.HTTP{MaxConnections: math.MaxInt32} }
	h, err := Listen(t.Context(), Backend{Logger: slog.New(slog.NewTextHandler(&log, nil)), Sessions: struct{ Sessions }{}, InFlight: new(tool.InFlight),
		LastSettings: settings, Settings: func(context.Context) config.HTTP { return settings() }}, Options{})
	testkit.Must(t, err)
	defer h.Close()
	most := openable()
	if got := h.sockets.limit(); got != most {
		t.Errorf("%d connections are taken, of %d that can be", got, most)
	}
	if clamped := most < math.MaxInt32; clamped != strings.Contains(log.String(), "ulimit") {
		t.Errorf("the log says %s", log.String())
	}
}
