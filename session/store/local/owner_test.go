package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"deepwork/actor/durable"
	"deepwork/session/store"
)

func TestAliveTellsWhoRuns(t *testing.T) {
	dir := newDir(t)
	p := start(t, dir, "hold", "")
	s := open(t, dir, Options{})
	if !s.member.Alive(p.first) {
		t.Fatal("a running server looks dead")
	}
	if text, want := s.member.Describe(p.first), fmt.Sprintf("pid %d on ", p.Process.Pid); !strings.HasPrefix(text, want) || !strings.Contains(text, " since 2") {
		t.Errorf("it is described as %q", text)
	}
	p.Crash()
	if s.member.Alive(p.first) {
		t.Error("a killed server looks alive")
	}
	if s.member.Describe(p.first) == "" || s.member.Describe(strings.Repeat("0", 16)) != "" || s.member.Describe("../x") != "" {
		t.Error("Describe")
	}
	if s.member.Alive(strings.Repeat("0", 16)) {
		t.Error("a server that never was is alive")
	}
	must(t, os.Mkdir(s.member.Path(strings.Repeat("1", 16)), 0o700))
	if s.member.Alive(strings.Repeat("1", 16)) {
		t.Error("a folder is alive")
	}
	must(t, s.Write(ctx, "00000001", numbered(1)))
	if exists(s.member.Path(p.first)) {
		t.Error("the dead server's lock file is still there")
	}
}

func TestCleanEnd(t *testing.T) {
	dir := newDir(t)
	p := start(t, dir, "hold", "")
	p.In.Close()
	if err := p.Wait(); err != nil {
		t.Fatalf("%v: %s", err, &p.Err)
	}
	s := open(t, dir, Options{})
	if s.member.Alive(p.first) || exists(s.member.Path(p.first)) {
		t.Error("a server that has ended left its place")
	}
}

// Several servers want the record of a dead one: exactly one gets it, and
// nobody gets that of a living one.
func TestTakeover(t *testing.T) {
	dir := newDir(t)
	p := start(t, dir, "hold", "")
	servers := make([]*Store, 8)
	for i := range servers {
		servers[i] = open(t, dir, Options{})
	}
	errOwned := errors.New("it is owned")
	race := func() (won int) {
		var wg sync.WaitGroup
		var wins atomic.Int32
		for n := range 4 * len(servers) {
			s := servers[n%len(servers)]
			wg.Go(func() {
				err := s.Update(ctx, "0123abcd", func(body []byte) ([]byte, error) {
					if s.member.Alive(owner(body)) {
						return nil, errOwned
					}
					return ownedBy(s.server), nil
				})
				if err == nil {
					wins.Add(1)
				} else if err != errOwned {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		return int(wins.Load())
	}
	if n := race(); n != 0 {
		t.Fatalf("%d took the record of a living server", n)
	}
	p.Crash()
	if n := race(); n != 1 {
		t.Fatalf("%d took the record", n)
	}
	body, err := servers[0].Read(ctx, "0123abcd")
	must(t, err)
	if !servers[0].member.Alive(owner(body)) || owner(body) == p.first {
		t.Errorf("it is owned by %s", owner(body))
	}
}

func TestUpdate(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	if err := s.Update(ctx, "0123abcd", nil); !errors.Is(err, store.ErrNotFound) || exists(dir) {
		t.Errorf("an update of nothing: %v", err)
	}
	must(t, s.Write(ctx, "0123abcd", numbered(1)))
	before, err := os.Stat(s.RecordPath("0123abcd"))
	must(t, err)
	boom := errors.New("boom")
	if err := s.Update(ctx, "0123abcd", func([]byte) ([]byte, error) { return numbered(2), boom }); err != boom {
		t.Errorf("change's error came back as %v", err)
	}
	must(t, s.Update(ctx, "0123abcd", func([]byte) ([]byte, error) { return nil, nil }))
	after, err := os.Stat(s.RecordPath("0123abcd"))
	must(t, err)
	if !os.SameFile(before, after) {
		t.Error("an update of nothing wrote")
	}
	must(t, os.WriteFile(s.RecordPath("0123abcd"), []byte("garbage"), 0o600))
	err = s.Update(ctx, "0123abcd", func([]byte) ([]byte, error) { t.Error("called"); return nil, nil })
	if bad, ok := errors.AsType[*store.DamagedError](err); !ok || !exists(bad.Path) || bad.Path == s.RecordPath("0123abcd") {
		t.Errorf("an update of a damaged record: %v", err)
	}
}

// Many processes claim their place and update one record at the same time.
func TestManyProcesses(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	must(t, s.Write(ctx, "0123abcd", numbered(0)))
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			p := start(t, dir, "count", "")
			if err := p.Wait(); err != nil {
				t.Errorf("%v: %s", err, &p.Err)
			}
		})
	}
	wg.Wait()
	mustRead(t, s, "0123abcd", numbered(100))
	noTemps(t, dir)
}

func TestManyStoresClaimAtOnce(t *testing.T) {
	dir := newDir(t)
	var wg sync.WaitGroup
	stores := make([]*Store, 20)
	for n := range stores {
		stores[n] = open(t, dir, Options{NoSync: true})
		wg.Go(func() {
			if err := stores[n].Create(ctx, fmt.Sprintf("%08x", n), numbered(n)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, a := range stores {
		for n, b := range stores {
			if !a.member.Alive(b.server) {
				t.Errorf("server %d looks dead", n)
			}
		}
	}
}

func TestClaimLockHeldByAnother(t *testing.T) {
	dir := newDir(t)
	p := start(t, dir, "lock", "")
	s := open(t, dir, Options{})
	must(t, s.Write(ctx, "0123abcd", numbered(1))) // which needs no claim lock
	s.claimWait = 50 * time.Millisecond
	change := func([]byte) ([]byte, error) { return numbered(2), nil }
	if err := s.Update(ctx, "0123abcd", change); err == nil || !strings.Contains(err.Error(), "claim.lock") || !strings.Contains(err.Error(), "50ms") {
		t.Errorf("a claim that had to wait too long: %v", err)
	}
	mustRead(t, s, "0123abcd", numbered(1))
	p.Crash() // with it goes the lock
	s.claimWait = time.Minute
	must(t, s.Update(ctx, "0123abcd", change))

	// Inside one process, too.
	in, out := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := s.Update(ctx, "0123abcd", func([]byte) ([]byte, error) { close(in); <-out; return nil, nil })
		if err != nil {
			t.Error(err)
		}
	})
	<-in
	must(t, s.Write(ctx, "00000001", numbered(1)))
	s.claimWait = 20 * time.Millisecond
	if err := s.Update(ctx, "00000001", nil); err == nil || !strings.Contains(err.Error(), "claim.lock") {
		t.Errorf("an update that had to wait too long: %v", err)
	}
	close(out)
	wg.Wait()
}

// A claim that fails is tried again by the next write.
func TestFailedClaimIsTriedAgain(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	must(t, os.MkdirAll(filepath.Dir(dir), 0o755))
	must(t, os.WriteFile(dir, nil, 0o600))
	if err := s.Write(ctx, "0123abcd", numbered(1)); err == nil || !strings.Contains(err.Error(), "is not a folder") {
		t.Errorf("a file in the folder's place: %v", err)
	}
	if _, err := Open(folder(dir), Options{}); err == nil {
		t.Error("a file was opened as the folder")
	}
	must(t, os.Remove(dir))
	if err := os.Symlink("nowhere", dir); err == nil {
		if err := s.Write(ctx, "0123abcd", numbered(1)); err == nil || !strings.Contains(err.Error(), "a link that leads nowhere") {
			t.Errorf("a link to nowhere in the folder's place: %v", err)
		}
		must(t, os.Remove(dir))
	}
	boom := errors.New("boom")
	s.disk.Carry = failing(durable.OpCreate, boom)
	if err := s.Write(ctx, "0123abcd", numbered(1)); !errors.Is(err, boom) {
		t.Errorf("a failed write: %v", err)
	}
	s.disk.Carry = nil
	must(t, s.Write(ctx, "0123abcd", numbered(1)))
	must(t, os.Mkdir(filepath.Join(folder(dir).Servers(), "claim.lock"), 0o700))
	if err := s.Update(ctx, "0123abcd", nil); err == nil || !strings.Contains(err.Error(), "is a folder, not a file") {
		t.Errorf("a folder in the claim lock's place: %v", err)
	}
	must(t, os.Remove(filepath.Join(folder(dir).Servers(), "claim.lock")))
	must(t, s.Write(ctx, "0123abcd", numbered(1)))
}

// Whatever is removed under a running server, it writes on and looks alive.
func TestThingsVanish(t *testing.T) {
	if os.PathSeparator == '\\' {
		t.Skip("open files cannot be removed here")
	}
	dir := newDir(t)
	s, other := open(t, dir, Options{}), open(t, dir, Options{})
	must(t, s.Write(ctx, "0123abcd", numbered(0)))
	n := 0
	check := func(what string) {
		t.Helper()
		n++
		if err := s.Write(ctx, "0123abcd", numbered(n)); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		mustRead(t, other, "0123abcd", numbered(n))
		if !other.member.Alive(s.server) {
			t.Errorf("%s: the server looks dead", what)
		}
		noTemps(t, dir)
	}
	must(t, os.Remove(s.member.Path(s.server)))
	check("lock file removed")
	must(t, os.WriteFile(s.member.Path(s.server)+"x", nil, 0o600))
	must(t, os.Rename(s.member.Path(s.server)+"x", s.member.Path(s.server)))
	check("lock file replaced")
	must(t, os.RemoveAll(dir))
	check("folder removed")
	must(t, os.RemoveAll(filepath.Dir(dir)))
	check("its parent removed")
	must(t, os.RemoveAll(folder(dir).Servers()))
	check("lock files removed")
	must(t, os.RemoveAll(folder(dir).Dir))
	check("all state removed")
	must(t, os.Rename(dir, dir+".old"))
	must(t, os.Mkdir(dir, 0o700))
	check("folder replaced")
	must(t, os.RemoveAll(dir+".old"))
	must(t, os.Rename(dir, dir+".old"))
	must(t, os.CopyFS(dir, os.DirFS(dir+".old")))
	check("folder restored from a copy")
	// The very lock file, but in another folder.
	must(t, os.RemoveAll(dir+".old"))
	must(t, os.Rename(dir, dir+".old"))
	must(t, os.Mkdir(dir, 0o700))
	entries, err := os.ReadDir(dir + ".old")
	must(t, err)
	for _, e := range entries {
		must(t, os.Rename(filepath.Join(dir+".old", e.Name()), filepath.Join(dir, e.Name())))
	}
	check("content moved to another folder")
	// In the middle of a write.
	once := true
	s.disk.Carry = after(durable.OpSync, func() error {
		if !once {
			return nil
		}
		once = false
		return os.RemoveAll(dir)
	})
	check("folder removed in mid-write")
	s.disk.Carry = after(durable.OpSync, func() error { return os.RemoveAll(dir) })
	if err := s.Write(ctx, "0123abcd", numbered(99)); err == nil {
		t.Error("a write into a folder that always vanishes passed")
	}
	s.disk.Carry = nil
	check("folder removed again and again")
}

// One who asks whether a server lives must never keep it from its place, nor
// make it look alive to others.
func TestAskingDoesNotDisturb(t *testing.T) {
	dir := newDir(t)
	s, a, b := open(t, dir, Options{}), open(t, dir, Options{}), open(t, dir, Options{})
	must(t, s.Write(ctx, "0123abcd", numbered(1)))
	dead := strings.Repeat("d", 16)
	must(t, os.WriteFile(s.member.Path(dead), nil, 0o600))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, asker := range []*Store{a, b} {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if asker.member.Alive(dead) {
					t.Error("a dead server looks alive")
					return
				}
				asker.member.Alive(s.server)
			}
		})
	}
	for n := range 20 {
		if os.PathSeparator == '/' {
			must(t, os.Remove(s.member.Path(s.server)))
		}
		must(t, s.Write(ctx, "0123abcd", numbered(n)))
	}
	close(done)
	wg.Wait()
	probe := flock.New(s.member.Path(s.server))
	if free, err := probe.TryRLock(); err != nil || free {
		t.Errorf("the server's lock is free: %v", err)
	}
}
