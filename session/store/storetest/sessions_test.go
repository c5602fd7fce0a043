package storetest_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/local"
	"deepwork/session/store/postgres"
)

// sessionStores are what one process has of a project's sessions.
type sessionStores struct {
	store.Sessions
	store.Definitions
	store.RequestIDs
	store.ActiveSessions
}

// sessionBackends are the implementations: each opens the project in dir for another process.
var sessionBackends = map[string]func(t *testing.T, dir string) sessionStores{
	"files": func(t *testing.T, dir string) sessionStores {
		member := session.NewMember(state.Of(dir), nil)
		files, err := local.Open(state.Of(dir), local.Options{Member: member})
		testkit.Must(t, err)
		t.Cleanup(func() {
			if err := errors.Join(files.Close(context.Background()), member.Leave()); err != nil {
				t.Error(err)
			}
		})
		return sessionStores{files, files, files, files}
	},
	"postgres": func(t *testing.T, dir string) sessionStores {
		s, err := postgres.Open(postgresOptions(dir, nil))
		noError(t, err)
		t.Cleanup(func() { noError(t, s.Close(context.Background())) })
		records, err := s.Records(store.RecordOptions{Head: headOf})
		noError(t, err)
		return sessionStores{records, records, records, records}
	},
}

// eachSessions runs a test on every implementation, with two processes.
func eachSessions(t *testing.T, test func(ctx context.Context, t *testing.T, a, b sessionStores)) {
	for name, open := range sessionBackends {
		if (name == "files") != (backend == "sqlite") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv(state.Env, filepath.Join(t.TempDir(), "state"))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			test(ctx, t, open(t, dir), open(t, dir))
		})
	}
}

// headOf reads a record of a test: that of a caller's active session has its key.
func headOf(body []byte) (h store.Head) {
	var record struct{ Caller byte }
	h.Active = json.Unmarshal(body, &record) == nil && record.Caller > 0
	h.Caller = store.Key{record.Caller}
	return h
}

// put writes a record that may be another process's, or makes it.
func put(ctx context.Context, s sessionStores, id string, body []byte) error {
	if _, err := s.Read(ctx, id); errors.Is(err, store.ErrNotFound) {
		return s.Create(ctx, id, body)
	}
	return s.Write(ctx, id, body)
}

func body(n int) []byte { return fmt.Appendf(nil, "{\n  \"n\": %d\n}", n) }

var noError = testkit.Must

func TestSessionsComeBackAsGiven(t *testing.T) {
	eachSessions(t, func(ctx context.Context, t *testing.T, a, b sessionStores) {
		want := func(n int) {
			t.Helper()
			read, err := b.Read(ctx, "0123abcd")
			peeked, err2 := a.Peek(ctx, "0123abcd")
			if err := errors.Join(err, err2); err != nil || string(read) != string(body(n)) || string(peeked) != string(read) {
				t.Errorf("read %q and %q, %v; want %d", read, peeked, err, n)
			}
		}
		noError(t, a.Create(ctx, "0123abcd", body(1)))
		want(1)
		noError(t, a.Write(ctx, "0123abcd", body(2)))
		want(2)
		if err := b.Create(ctx, "0123abcd", body(9)); !errors.Is(err, store.ErrExists) {
			t.Errorf("Create of one that exists: %v", err)
		}
		want(2)
		refused := errors.New("refused")
		for next, wanted := range map[int]error{3: nil, 0: nil, -1: refused} {
			err := b.Update(ctx, "0123abcd", func(now []byte) ([]byte, error) {
				if next <= 0 {
					return nil, wanted
				}
				return body(next), nil
			})
			if err != wanted {
				t.Errorf("Update to %d: %v", next, err)
			}
		}
		want(3)
		noError(t, a.Settle(ctx))
		var ids []string
		for info, err := range b.List(ctx) {
			noError(t, err)
			ids = append(ids, info.ID)
		}
		if !slices.Equal(ids, []string{"0123abcd"}) {
			t.Errorf("listed %v", ids)
		}
		noError(t, b.Remove(ctx, "0123abcd"))
		noError(t, b.Remove(ctx, "0123abcd"))
		_, read := a.Read(ctx, "0123abcd")
		_, peek := a.Peek(ctx, "0123abcd")
		for _, err := range []error{read, peek, a.Update(ctx, "0123abcd", nil)} {
			if !errors.Is(err, store.ErrNotFound) {
				t.Errorf("of one that was removed: %v", err)
			}
		}
	})
}

// Every process knows the number of the newest record; that of a removed one is forgotten.
func TestTheNewestRecordIsKnown(t *testing.T) {
	if backend != "sqlite" {
		t.Skip("only files can be put back")
	}
	eachSessions(t, func(ctx context.Context, t *testing.T, a, b sessionStores) {
		const id = "0123abcd"
		testkit.Must(t, a.Create(ctx, id, []byte("{\n  \"n\": 1\n}")))
		for _, number := range []int64{0, 12, 3, 1 << 53} {
			if number > 0 {
				testkit.Must(t, a.NoteNewest(ctx, id, number))
			}
			if got := b.Newest(ctx, id); got != number {
				t.Errorf("the newest is %d, want %d", got, number)
			}
		}
		if err := a.NoteNewest(ctx, "../escape", 1); err == nil {
			t.Error("a path is taken for an id")
		}
		testkit.Must(t, b.Remove(ctx, id))
		if got := a.Newest(ctx, id); got != 0 {
			t.Errorf("of a removed record the newest is %d", got)
		}
	})
}

func TestDefinitionsComeBackAsGiven(t *testing.T) {
	eachSessions(t, func(ctx context.Context, t *testing.T, a, b sessionStores) {
		sum := sha256.Sum256([]byte("text"))
		hash := hex.EncodeToString(sum[:])
		if _, err := b.Definition(ctx, hash); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("none: %v", err)
		}
		noError(t, a.PutDefinition(ctx, hash, []byte("text")))
		noError(t, b.PutDefinition(ctx, hash, []byte("text")))
		if got, err := b.Definition(ctx, hash); err != nil || string(got) != "text" {
			t.Errorf("got %q, %v", got, err)
		}
		if n, err := a.PruneDefinitions(ctx, time.Now(), func(string) bool { return false }); err != nil || n != 0 {
			t.Errorf("%d were pruned that were put just now, %v", n, err)
		}
	})
}

func TestARequestIsFoundByAnyProcess(t *testing.T) {
	eachSessions(t, func(ctx context.Context, t *testing.T, a, b sessionStores) {
		for _, id := range []string{"00000001", "00000001", "00000002"} {
			noError(t, put(ctx, a, id, body(1)))
			noError(t, a.NoteRequest(ctx, store.Key{7}, id))
			noError(t, put(ctx, a, id, body(2)))
		}
		for key, want := range map[store.Key][]string{{7}: {"00000002", "00000001"}, {8}: nil} {
			if got, err := b.FindRequest(ctx, key); err != nil || !slices.Equal(got, want) {
				t.Errorf("found %v, %v; want %v", got, err, want)
			}
		}
	})
}

func TestActiveSessionsAreFoundByAnyProcess(t *testing.T) {
	eachSessions(t, func(ctx context.Context, t *testing.T, a, b sessionStores) {
		mine, other := store.Key{7}, store.Key{8}
		want := func(s sessionStores, caller store.Key, want ...string) {
			t.Helper()
			var got []string
			for id, err := range s.Active(ctx, caller) {
				noError(t, err)
				got = append(got, id)
			}
			if !slices.Equal(got, want) {
				t.Errorf("active are %v, want %v", got, want)
			}
		}
		note := func(s sessionStores, caller store.Key, id string, over bool) error {
			active := caller[0]
			if over {
				active = 0
			}
			return errors.Join(s.NoteActive(ctx, caller, id, over), put(ctx, s, id, fmt.Appendf(nil, "{\n  \"caller\": %d\n}", active)))
		}
		want(a, mine)
		for _, id := range []string{"0000000a", "0000000b", "0000000c"} {
			noError(t, note(a, mine, id, false))
		}
		noError(t, note(b, other, "0000000d", false))
		want(b, mine, "0000000c", "0000000b", "0000000a")
		noError(t, note(b, mine, "0000000a", false))
		noError(t, note(b, mine, "0000000b", true))
		want(a, mine, "0000000a", "0000000c")
		want(a, other, "0000000d")
		noError(t, note(a, mine, "0000000b", false))
		want(b, mine, "0000000b", "0000000a", "0000000c")
	})
}
