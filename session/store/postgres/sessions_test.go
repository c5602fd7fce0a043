package postgres

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/store/sqlstore"
)

// A head is what the tests' records consist of.
type head struct {
	Owner  string `json:"owner"`
	N      int    `json:"n"`
	Active bool   `json:"active"`
}

func (h head) bytes() []byte {
	text, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		panic(err)
	}
	return text
}

func headOf(body []byte) (h head) {
	if err := json.Unmarshal(body, &h); err != nil {
		panic(err)
	}
	return h
}

func recordsOf(s *Store) *Records {
	r, err := s.Records(store.RecordOptions{Head: func(body []byte) store.Head {
		h := headOf(body)
		return store.Head{Owner: h.Owner, Active: h.Active, Caller: store.Key{1}}
	}})
	if err != nil {
		panic(err)
	}
	return r.(*Records)
}

const id = "0123abcd"

// takeOver makes a process the owner of a session whose owner has no lease.
func takeOver(ctx context.Context, s *Store, r *Records, id string) error {
	return r.Update(ctx, id, func(body []byte) ([]byte, error) {
		h := headOf(body)
		if h.Owner != "" && h.Owner != s.ID() && s.Alive(h.Owner) {
			return nil, &store.OwnedError{ID: id, Owner: h.Owner}
		}
		h.Owner = s.ID()
		h.N++
		return h.bytes(), nil
	})
}

// stored is a record as another process reads it.
func stored(t testing.TB, r *Records, id string) head {
	t.Helper()
	body, err := r.Peek(t.Context(), id)
	must(t, err)
	return headOf(body)
}

func init() {
	// own makes two sessions, and at each line writes both.
	roles["own"] = func(s *Store, in *bufio.Scanner) error {
		ctx, r := context.Background(), recordsOf(s)
		if err := s.Enter(ctx); err != nil {
			return err
		}
		for _, id := range []string{"00000001", "00000002"} {
			if err := r.Create(ctx, id, head{s.ID(), 1, true}.bytes()); err != nil {
				return err
			}
		}
		fmt.Println(s.ID())
		for n := 2; in.Scan(); n++ {
			_, untrusted := s.Term()
			said := []string{fmt.Sprint(errors.Is(untrusted, store.ErrUnavailable))}
			for _, id := range []string{"00000001", "00000002"} {
				err := r.Write(ctx, id, head{s.ID(), n, true}.bytes())
				if o, ok := errors.AsType[*store.OwnedError](err); ok {
					said = append(said, o.Owner+" "+o.Where)
				} else {
					said = append(said, fmt.Sprint(err))
				}
			}
			term, err := s.Term()
			fmt.Println(strings.Join(append(said, fmt.Sprint(term, err)), "|"))
		}
		return nil
	}
}

// A process that was suspended for longer than its lease cannot overwrite what another has taken, and
// goes on with what nobody took.
func TestASuspendedProcess(t *testing.T) {
	s, url := openNew(t)
	must(t, s.Enter(t.Context()))
	mine := recordsOf(s)
	child := start(t, "own", url)
	owner := child.Line()
	if owner == "" {
		t.Fatal(&child.Err)
	}
	if err := takeOver(t.Context(), s, mine, "00000001"); !isOwned(err) {
		t.Fatalf("the session of a running process was taken: %v", err)
	}
	if want := fmt.Sprintf("pid %d on ", child.Process.Pid); !strings.HasPrefix(s.Describe(owner), want) {
		t.Errorf("described as %q", s.Describe(owner))
	}
	suspend(t, child.Process.Pid)
	for began := time.Now(); s.Alive(owner); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("its lease does not end")
		}
	}
	must(t, takeOver(t.Context(), s, mine, "00000001"))
	resume(t, child.Process.Pid)
	io.WriteString(child.In, "\n")
	got := child.Line()
	want := []string{"true", s.ID() + " " + s.Describe(s.ID()), "<nil>", "2 <nil>"}
	if got != strings.Join(want, "|") {
		t.Errorf("the child said %s, want %v; %s", got, want, &child.Err)
	}
	if one, two := stored(t, mine, "00000001"), stored(t, mine, "00000002"); one != (head{s.ID(), 2, true}) || two != (head{owner, 2, true}) {
		t.Errorf("the sessions are %+v and %+v", one, two)
	}
	must(t, mine.Write(t.Context(), "00000001", head{s.ID(), 3, true}.bytes()))
}

func isOwned(err error) bool {
	_, ok := errors.AsType[*store.OwnedError](err)
	return ok
}

// Of several processes that take over the session of one that has ended, one gets it.
func TestTakingOneSessionAtOnce(t *testing.T) {
	first, url := openNew(t)
	must(t, first.Enter(t.Context()))
	must(t, recordsOf(first).Create(t.Context(), id, head{first.ID(), 1, true}.bytes()))
	must(t, first.Close(t.Context()))
	var all sync.WaitGroup
	var mu sync.Mutex
	var winners []string
	for range 8 {
		s := openAt(t, url)
		must(t, s.Enter(t.Context()))
		all.Go(func() {
			err := takeOver(t.Context(), s, recordsOf(s), id)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				winners = append(winners, s.ID())
			} else if !isOwned(err) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s := openAt(t, url)
	if h := stored(t, recordsOf(s), id); len(winners) != 1 || h.Owner != winners[0] || h.N != 2 {
		t.Errorf("%v have taken it, and it is %+v", winners, h)
	}
}

// After a lost reply each kind of write knows whether it was made, also if the statement is still on
// its way when the process asks.
func TestLostReplyToAWrite(t *testing.T) {
	s, url := openNew(t)
	must(t, s.Enter(t.Context()))
	calls := map[string]func(ctx context.Context, r *Records, id string) error{
		"Create": func(ctx context.Context, r *Records, id string) error {
			return r.Create(ctx, id+"9", head{r.s.ID(), 9, true}.bytes())
		},
		"Write": func(ctx context.Context, r *Records, id string) error {
			return r.Write(ctx, id+"1", head{r.s.ID(), 9, true}.bytes())
		},
		"Update": func(ctx context.Context, r *Records, id string) error {
			return r.Update(ctx, id+"1", func([]byte) ([]byte, error) { return head{r.s.ID(), 9, true}.bytes(), nil })
		},
	}
	request := func(m pgtest.Message) bool { // Parse
		return !m.FromServer && m.Type == 'P' && strings.Contains(string(m.Body), "transition")
	}
	n := 0
	for how, begin := range map[string]func(p *pgtest.Proxy) <-chan struct{}{
		"reply": func(p *pgtest.Proxy) <-chan struct{} {
			return p.CutAt(func(m pgtest.Message) bool { return m.Commits })
		},
		"request": func(p *pgtest.Proxy) <-chan struct{} { return p.CutAt(request) },
		"delayed": func(p *pgtest.Proxy) <-chan struct{} { return p.HoldAt(request, 3*time.Second) },
	} {
		for name, call := range calls {
			n++
			prefix := fmt.Sprintf("%07x", n)
			t.Run(name+" "+how, func(t *testing.T) {
				proxy := pgtest.NewProxy(t, url)
				slow := openAt(t, proxy.URL)
				r, direct := recordsOf(slow), recordsOf(s)
				must(t, slow.Enter(t.Context()))
				must(t, r.Create(t.Context(), prefix+"1", head{slow.ID(), 1, true}.bytes()))
				caught := begin(proxy)
				began := time.Now()
				err := func() error { // half of the time is for the write
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					return call(ctx, r, prefix)
				}()
				<-caught
				made := prefix + map[string]string{"Create": "9"}[name]
				if name != "Create" {
					made = prefix + "1"
				}
				if err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Error(err)
				}
				if how == "reply" && err != nil {
					t.Errorf("the reply was lost: %v", err)
				}
				again := err == nil || name != "Create" // else its id is not used again
				body, perr := direct.Peek(t.Context(), made)
				is := perr == nil && headOf(body).N == 9
				if is != (err == nil) || perr != nil && !errors.Is(perr, store.ErrNotFound) {
					t.Errorf("the call returned %v, and the record is %s, %v", err, body, perr)
				}
				if again {
					must(t, r.Write(t.Context(), made, head{slow.ID(), 10, true}.bytes()))
				}
				for time.Since(began) < 3500*time.Millisecond && how == "delayed" { // what was on its way arrives
					time.Sleep(20 * time.Millisecond)
				}
				if body, perr = direct.Peek(t.Context(), made); again != (perr == nil) || again && headOf(body).N != 10 {
					t.Errorf("then it is %s, %v", body, perr)
				}
			})
		}
	}
}

// A process whose lease had ended, and that has a new term before another one has taken its session,
// keeps it; what it sent in the earlier term changes nothing.
func TestANewTermKeepsSessions(t *testing.T) {
	a, url := openNew(t)
	b := openAt(t, url)
	must(t, b.Enter(t.Context()))
	mine := recordsOf(a)
	must(t, mine.Create(t.Context(), id, head{a.ID(), 1, true}.bytes()))
	_, err := b.exec(t.Context(), `UPDATE @members SET expires = clock_timestamp() - interval '1 s' WHERE id = $1`, a.ID())
	must(t, err)
	calls := 0
	err = recordsOf(b).Update(t.Context(), id, func([]byte) ([]byte, error) {
		if calls++; calls > 1 && b.Alive(a.ID()) {
			return nil, &store.OwnedError{ID: id, Owner: a.ID()}
		}
		must(t, a.renew())
		return head{b.ID(), 2, true}.bytes(), nil
	})
	if !isOwned(err) || calls != 2 {
		t.Errorf("taken over with %v after %d calls", err, calls)
	}
	if n, err := a.exec(t.Context(), updateText, a.scope.Load(), id, a.ID(), 1, "late", "", "{}", a.ID(), 1, 1); n != 0 || err != nil {
		t.Errorf("a write of the earlier term changed %d rows, %v", n, err)
	}
	must(t, mine.Write(t.Context(), id, head{a.ID(), 2, true}.bytes()))
}

// While nobody can be asked about the outcome it is pending, and the next call learns it. A request
// creates one record, also if it is repeated then, and the first write arrives later.
func TestAnOutcomeThatIsLearnedLater(t *testing.T) {
	s, url := openNew(t)
	proxy := pgtest.NewProxy(t, url)
	cut := openAt(t, proxy.URL)
	r, direct := recordsOf(cut), recordsOf(s)
	for i, name := range []string{"request", "reply"} {
		one, two, three := fmt.Sprintf("%08x", i), fmt.Sprintf("%08x", 16+i), fmt.Sprintf("%08x", 32+i)
		key := store.Key{byte(i)}
		must(t, r.Create(t.Context(), one, head{cut.ID(), 1, true}.bytes()))
		for _, id := range []string{one, two} {
			caught := proxy.RefuseAt(func(m pgtest.Message) bool {
				if name == "request" {
					return !m.FromServer && m.Type == 'P' && strings.Contains(string(m.Body), "transition")
				}
				return m.Commits
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			var err error
			if id == one {
				err = r.Write(ctx, one, head{cut.ID(), 2, true}.bytes())
			} else {
				must(t, r.NoteRequest(ctx, key, two))
				err = r.Create(ctx, two, head{cut.ID(), 2, true}.bytes())
			}
			cancel()
			<-caught
			if !errors.Is(err, store.ErrPending) {
				t.Errorf("%s of %s: %v", name, id, err)
			}
			ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
			if _, err := r.Read(ctx, one); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrPending) {
				t.Errorf("%s of %s: read meanwhile: %v", name, id, err)
			}
			cancel()
			proxy.Refuse(false)
			testkit.Until(t, "the lease is renewed", func() bool { return second(cut.Term()) == nil && cut.away() == nil })
		}
		body, err := r.Read(t.Context(), one)
		must(t, err)
		if h := headOf(body); h != stored(t, direct, one) || (name == "reply") != (h.N == 2) {
			t.Errorf("%s: read %+v", name, h)
		}
		must(t, r.Write(t.Context(), one, head{cut.ID(), 3, true}.bytes()))
		must(t, r.NoteRequest(t.Context(), key, three))
		if err := r.Create(t.Context(), three, head{cut.ID(), 2, true}.bytes()); (name == "request") != (err == nil) || errors.Is(err, store.ErrPending) {
			t.Errorf("%s repeated: %v", name, err)
		}
		_, err = s.exec(t.Context(), insertNoted, s.scope.Load(), two, cut.ID(), 1, "late", "", "{}", hex.EncodeToString(key[:]))
		if (name == "request") != requested(err) {
			t.Errorf("%s: the late write: %v", name, err)
		}
		for _, id := range []string{two, three} {
			if _, err := direct.Peek(t.Context(), id); (id == two) != (name == "reply") != errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: record %s: %v", name, id, err)
			}
		}
	}
}

// What is noted about a session is stored with its record, and everything works through PgBouncer in
// transaction mode.
func TestNotesAreStoredWithTheRecord(t *testing.T) {
	s, url := openNew(t)
	a, b := recordsOf(s), recordsOf(openAt(t, pgtest.Bouncer(t, url)))
	active := func() (ids []string) {
		for id, err := range a.Active(t.Context(), store.Key{1}) {
			must(t, err)
			ids = append(ids, id)
		}
		return ids
	}
	key := func(n byte) store.Key { return store.Key{n} }
	must(t, b.NoteRequest(t.Context(), key(7), id))
	if found, err := a.FindRequest(t.Context(), key(7)); len(found) > 0 || err != nil {
		t.Errorf("found %v before the record, %v", found, err)
	}
	must(t, b.Create(t.Context(), id, head{b.s.ID(), 1, true}.bytes()))
	if got := active(); !slices.Equal(got, []string{id}) {
		t.Errorf("active are %v", got)
	}
	must(t, b.NoteRequest(t.Context(), key(8), id))
	must(t, b.Write(t.Context(), id, head{b.s.ID(), 2, false}.bytes()))
	must(t, b.Write(t.Context(), id, head{"", 3, false}.bytes()))
	must(t, takeOver(t.Context(), a.s, a, id))
	for n := range byte(2) {
		if found, err := a.FindRequest(t.Context(), key(7+n)); !slices.Equal(found, []string{id}) || err != nil {
			t.Errorf("found %v, %v", found, err)
		}
	}
	if got := active(); len(got) > 0 {
		t.Errorf("active are %v after the end", got)
	}
	if err := b.Write(t.Context(), id, head{b.s.ID(), 4, true}.bytes()); !isOwned(err) {
		t.Errorf("written by another process: %v", err)
	}
	must(t, b.s.Transact(t.Context(), sqlstore.Writing, func(context.Context, sqlstore.Querier) error { return nil }))
}

// A server without connections left is unavailable, and later it is not.
func TestExhaustedConnections(t *testing.T) {
	server := pgtest.New(t, "max_connections=15")
	s := openAt(t, server.URL())
	r := recordsOf(s)
	must(t, r.Create(t.Context(), id, head{s.ID(), 1, true}.bytes()))
	release, err := pgtest.Exhaust(server.At(""))
	must(t, err)
	other := openAt(t, server.URL())
	if err := other.Open(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("opened: %v", err)
	}
	must(t, r.Write(t.Context(), id, head{s.ID(), 2, true}.bytes())) // it keeps its connections
	release()
	testkit.Until(t, "it opens", func() bool { return other.Open(t.Context()) == nil })
}

// Writers go on after the database was killed, and nothing that was acknowledged is lost.
func TestADatabaseThatIsKilledUnderLoad(t *testing.T) {
	server := pgtest.New(t)
	s := openAt(t, server.URL())
	r := recordsOf(s)
	must(t, s.Enter(t.Context()))
	const writers = 8
	var all sync.WaitGroup
	acked := make([]int, writers)
	ctx, stop := context.WithCancel(t.Context())
	progress := make(chan struct{}, writers)
	for w := range writers {
		all.Go(func() {
			id := fmt.Sprintf("%08x", w)
			must(t, r.Create(t.Context(), id, head{s.ID(), 0, true}.bytes()))
			for n := 1; ctx.Err() == nil; {
				err := r.Write(t.Context(), id, head{s.ID(), n, true}.bytes())
				if errors.Is(err, store.ErrPending) || isOwned(err) {
					var body []byte
					if body, err = r.Read(t.Context(), id); err == nil && headOf(body).N < acked[w] {
						t.Errorf("%d was acknowledged, and %d is stored", acked[w], headOf(body).N)
						return
					} else if err == nil {
						n = headOf(body).N
						acked[w], n = n, n+1
						continue
					}
				}
				switch {
				case err == nil:
					acked[w], n = n, n+1
					select {
					case progress <- struct{}{}:
					default:
					}
				case !errors.Is(err, store.ErrUnavailable):
					t.Error(err)
					return
				}
			}
		})
	}
	for range 3 {
		for range 50 {
			<-progress
		}
		must(t, server.Kill())
		must(t, server.Start())
	}
	for range 50 {
		<-progress
	}
	stop()
	all.Wait()
	for w := range writers {
		if h := stored(t, r, fmt.Sprintf("%08x", w)); h.N != acked[w] {
			t.Errorf("writer %d: %d was acknowledged last, and %+v is stored", w, acked[w], h)
		}
	}
}

// A process that joins forgets those that ended over 30 days ago, except owners that sessions still name.
func TestProcessesThatAreForgotten(t *testing.T) {
	s, url := openNew(t)
	must(t, s.Enter(t.Context()))
	owner, gone, recent, old := "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", "cccccccccccccccc", "dddddddddddddddd"
	for id, ended := range map[string]string{owner: "31 days", gone: "31 days", recent: "29 days", old: "-1 minute"} {
		_, err := s.exec(t.Context(), `INSERT INTO @members (id, scope, term, expires, machine, host, pid, root, since)
			VALUES ($1, $2, 1, clock_timestamp() - $3::interval, 'm', 'here', 7, '/srv/shop', clock_timestamp() - interval '40 days')`, id, s.scope.Load(), ended)
		must(t, err)
	}
	_, err := s.exec(t.Context(), `INSERT INTO @commits SELECT id, '' FROM @members`)
	must(t, err)
	r := recordsOf(s)
	must(t, r.Create(t.Context(), id, head{owner, 1, true}.bytes()))
	must(t, openAt(t, url).Enter(t.Context()))
	for id, want := range map[string]bool{owner: true, gone: false, recent: true, old: true, s.ID(): true} {
		if got := s.Describe(id) != ""; got != want {
			t.Errorf("%s is known: %v", id, got)
		}
	}
	// It is kept as long as a session names it.
	must(t, takeOver(t.Context(), s, r, id))
	must(t, openAt(t, url).Enter(t.Context()))
	if text := s.Describe(owner); text != "" {
		t.Errorf("it is described as %s", text)
	}
}
