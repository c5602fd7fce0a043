package presence

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofrs/flock"
	"go.uber.org/goleak"

	"deepwork/actor/testkit"
)

func entered(t testing.TB, dir string) *Member {
	s := newMember(dir)
	t.Cleanup(func() { s.Leave() })
	must(t, s.Enter(t.Context()))
	return s
}

// fakeID is an id that no server here draws.
func fakeID(c string) string { return strings.Repeat(c, 16) }

func TestAKilledServerIsDeadAndARunningOneAlive(t *testing.T) {
	dir := t.TempDir()
	p, q := start(t, dir), start(t, dir)
	s := newMember(dir)
	testkit.Need(t, s.Alive(p.id) && s.Alive(q.id), "a running server looks dead")
	testkit.ContainsAll(t, s.Describe(p.id), []string{fmt.Sprintf("pid %d on ", p.Process.Pid), " since 2"})
	p.Crash()
	testkit.True(t, !s.Alive(p.id), "a killed server does not look like one")
	testkit.True(t, exists(s.Path(p.id)), "a killed server does not look like one")
	testkit.True(t, s.Describe(p.id) != "", "a killed server does not look like one")
	testkit.True(t, s.Alive(q.id), "the other one looks dead")
	q.In.Close()
	testkit.Works(t, q.Wait(), "%s", &q.Err)
	testkit.True(t, !s.Alive(q.id) && !exists(s.Path(q.id)), "a server that has ended left its lock file")
}

// A living server notices what was done to its lock file, which nobody who looks takes for a living one, and
// makes it again.
func TestALockFileThatIsReplacedOrDeleted(t *testing.T) {
	if os.PathSeparator == '\\' {
		t.Skip("open files cannot be removed here")
	}
	dir := filepath.Join(t.TempDir(), "servers")
	must(t, os.Mkdir(dir, 0o700))
	p, s := start(t, dir), newMember(dir)
	path := s.Path(p.id)
	for what, do := range map[string]func() error{
		"left alone": func() error { return nil },
		"deleted":    func() error { return os.Remove(path) },
		"replaced": func() error {
			return errors.Join(os.WriteFile(path+"x", nil, 0o600), os.Rename(path+"x", path))
		},
		"deleted with the folder": func() error { return os.RemoveAll(dir) },
		"restored from a copy": func() error {
			return errors.Join(os.Rename(dir, dir+".old"), os.CopyFS(dir, os.DirFS(dir+".old")),
				os.RemoveAll(dir+".old"))
		},
	} {
		must(t, do())
		alone := what == "left alone"
		testkit.Equal(t, s.Alive(p.id), alone, "%s: it looks alive", what)
		io.WriteString(p.In, "\n")
		testkit.Equal(t, p.Line(), fmt.Sprint(alone), "%v %v", what, &p.Err)
		testkit.True(t, s.Alive(p.id), "%s: it looks dead after it has entered again", what)
	}
}

func TestWhatIsNoServerIsNotAlive(t *testing.T) {
	s := newMember(t.TempDir())
	must(t, os.Mkdir(s.Path(fakeID("1")), 0o700))
	stranger := flock.New(s.Path("0123")) // has its lock, and is not a server
	taken(t, stranger.TryLock)
	defer stranger.Close()
	for _, id := range []string{"", "../x", "0123", fakeID("0"), fakeID("1"), strings.ToUpper(fakeID("a")),
		s.ID() + "0"} {
		testkit.True(t, !s.Alive(id) && s.Describe(id) == "", "%q is alive", id)
	}

	for name, want := range map[string]bool{
		"server_" + fakeID("a") + ".lock": true, "server_" + fakeID("A") + ".lock": false,
		"server_" + fakeID("a"): false, fakeID("a") + ".lock": false, "server_.lock": false,
		"server_" + fakeID("a") + ".lock.lock": false, "server_" + fakeID("g") + ".lock": false,
	} {
		id, ok := LockOf(name)
		testkit.True(t, ok == want && (!ok || id == fakeID("a")), "LockOf(%q) is %q, %v", name, id, ok)
	}
}

// Older servers have nothing in their lock files, or no blank before what they say, and some ask with an
// exclusive lock.
func TestOlderServers(t *testing.T) {
	s := entered(t, t.TempDir())
	for i, text := range []string{"", `{"host":"h","pid":7,"started_at":"2026-01-02T03:04:05Z"}` + "\n"} {
		id := fakeID(fmt.Sprint(i))
		must(t, os.WriteFile(s.Path(id), []byte(text), 0o600))
		lock := flock.New(s.Path(id), flock.SetFlag(os.O_RDWR))
		taken(t, lock.TryLock)
		testkit.True(t, s.Alive(id), "a server looks dead with %q in its file", text)
		lock.Close()
		testkit.True(t, !s.Alive(id), "a server that has ended looks alive with %q in its file", text)
	}
	probe := flock.New(s.Path(s.ID()), flock.SetFlag(os.O_RDWR))
	testkit.Equal(t, testkit.Get(probe.TryLock()).Must(t), false, "its lock is free for those who ask so")
}

func taken(t *testing.T, try func() (bool, error)) {
	t.Helper()
	testkit.Need(t, testkit.Get(try()).Must(t), "it is locked")
}

func TestLeaving(t *testing.T) {
	dir := t.TempDir()
	other := newMember(dir)
	never := newMember(dir)
	gone := entered(t, dir)
	fell := entered(t, dir)
	must(t, errors.Join(never.Leave(), gone.Leave(), gone.Leave()))
	fell.Fall()
	for _, s := range []*Member{never, gone, fell} {
		testkit.True(t, !s.Alive(s.ID()), "a server that left looks alive")
		testkit.True(t, !other.Alive(s.ID()), "a server that left looks alive")
		testkit.True(t, !s.Entered(), "a server that left looks alive")
		testkit.Equal(t, exists(s.Path(s.ID())), (s == fell), "a server that left looks alive")
		testkit.Equal(t, s.Enter(t.Context()), ErrLeft, "it entered again")
	}
}

// Who has the lock file open delays a server, no longer than it is told to wait; nothing is left of what failed.
func TestEnteringThatFails(t *testing.T) {
	dir := t.TempDir()
	boom := errors.New("boom")
	s := New(Options{Dir: dir, Prepare: func() error { return boom }})
	testkit.FailsWith(t, s.Enter(t.Context()), boom)
	testkit.True(t, !exists(s.Path(s.ID())) && !s.Entered(), "something is left of a failure")

	synctest.Test(t, func(t *testing.T) {
		s := newMember(dir)
		probe := flock.New(s.Path(s.ID()))
		taken(t, probe.TryRLock)
		began := time.Now()
		testkit.ContainsAll(t, fmt.Sprint(s.Enter(t.Context())), []string{"another process holds", s.Path(s.ID())})
		testkit.True(t, !exists(s.Path(s.ID())), "something is left of it")
		testkit.Equal(t, time.Since(began), 10*time.Second, "it waited for")

		must(t, probe.Close())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		testkit.FailsWith(t, s.Enter(ctx), context.Canceled, "a caller who has gone")

		taken(t, probe.TryRLock)
		time.AfterFunc(time.Second, func() { probe.Close() })
		must(t, errors.Join(s.Enter(t.Context()), s.Leave()))
	})
}

func TestSweepTakesTheDeadAlone(t *testing.T) {
	dir := t.TempDir()
	a, b := entered(t, dir), entered(t, dir)
	p := start(t, dir)
	p.Crash()
	must(t, errors.Join(os.Mkdir(a.Path(fakeID("1")), 0o700), os.WriteFile(filepath.Join(dir, "note"), nil, 0o600)))
	b.Sweep()
	// where an open file cannot be removed
	testkit.Equal(t, exists(a.Path(p.id)), os.PathSeparator == '\\', "the dead one is left")
	testkit.True(t, exists(a.Path(fakeID("1"))), "too much was swept")
	testkit.True(t, exists(filepath.Join(dir, "note")), "too much was swept")
	testkit.True(t, exists(a.Path(a.ID())), "too much was swept")
	testkit.True(t, exists(b.Path(b.ID())), "too much was swept")
	newMember(filepath.Join(dir, "none")).Sweep() // no folder, nothing to do
}

// Calls at once make one lock file; that it is made again is logged.
func TestALockFileIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		made, more := 0, make(chan struct{})
		s := New(Options{Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil)), Prepare: func() error {
			made++
			<-more
			return nil
		}})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { testkit.Works(t, s.Enter(t.Context())) })
		}
		close(more)
		wg.Wait()
		testkit.True(t, made == 1 && log.Len() == 0, "it was made %d times: %s", made, &log)
		if os.PathSeparator == '/' {
			must(t, errors.Join(os.Remove(s.Path(s.ID())), s.Enter(t.Context())))
			testkit.Equal(t, made, 2, "it was made")
			testkit.Contains(t, log.String(), "removed by somebody", "it was made")
		}
		must(t, s.Leave())
	})
}

// Many servers enter, ask and sweep at the same time, and none looks dead that has entered, or loses its lock file.
func TestManyServersAtOnce(t *testing.T) {
	dir := t.TempDir()
	resident := entered(t, dir)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 50 {
				s := newMember(dir)
				testkit.Works(t, s.Enter(t.Context()))
				testkit.True(t, s.Entered(), "a server looks dead, or was swept")
				testkit.True(t, resident.Alive(s.ID()), "a server looks dead, or was swept")
				testkit.True(t, s.Alive(resident.ID()), "a server looks dead, or was swept")
				s.Sweep()
				testkit.Works(t, s.Leave())
			}
		})
	}
	wg.Wait()
	testkit.True(t, resident.Entered(), "a server lost its lock file")
}

// One who asks must never make a dead server look alive to another who asks, nor keep its lock.
func TestAskingDoesNotDisturb(t *testing.T) {
	s := newMember(t.TempDir())
	dead := fakeID("d")
	must(t, os.WriteFile(s.Path(dead), nil, 0o600))
	another := flock.New(s.Path(dead), flock.SetFlag(os.O_RDONLY))
	taken(t, another.TryRLock)
	testkit.True(t, !s.Alive(dead), "one who asks was taken for the server")
	another.Close()
	testkit.True(t, !s.Alive(dead), "a dead server is alive")
	taken(t, another.TryLock) // it was not kept
	another.Close()
}

const dirEnv = "PRESENCE_DIR"

// TestMain lets the tests run this binary again, as another server: it enters, says its id, and at each line
// that it hears reports whether it has entered, and enters again. At the end of its input it leaves.
func TestMain(m *testing.M) {
	if dir := os.Getenv(dirEnv); dir != "" {
		s, in := newMember(dir), bufio.NewScanner(os.Stdin)
		err := s.Enter(context.Background())
		fmt.Println(s.ID())
		for err == nil && in.Scan() {
			entered := s.Entered()
			err = s.Enter(context.Background())
			fmt.Println(entered)
		}

		if err = errors.Join(err, s.Leave()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}

	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

func newMember(dir string) *Member { return New(Options{Dir: dir}) }

type process struct {
	*testkit.Child
	id string // the first line it said
}

func start(t testing.TB, dir string) *process {
	t.Helper()
	c := testkit.Start(t, dirEnv+"="+dir)
	return &process{c, c.Line()}
}

var must = testkit.Must

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
