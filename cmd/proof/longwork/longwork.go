// Package longwork proves that long calls outlive servers: a real client makes one, the server is killed and
// started again at random moments, and in the end the call has exactly one result, and nothing was done twice. The
// judges are the journals of those who do the work, and the database. To change the package, know these:
//   - Options: which cases are made;
//   - client.mjs: the client, written with the official TypeScript SDK;
//   - model: the scripted one of the real Claude Code, the other client;
//   - trial: one case, a project with its server, source and client.
package longwork

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kinds are the kinds of long calls: a step that a reviewer reviews, a run of a workflow by an agent, a workflow of
// another system, and a step that a person passes.
var Kinds = []string{"review", "run", "remote", "question"}

// Eras are the versions of the protocol: the newest, and the last that has sessions. Over HTTP only the
// newest has tasks.
var Eras = []string{"2026-07-28", "2025-11-25"}

// Options are what Prove is told.
type Options struct {
	Program  string // deepwork
	Self     string // the program with the subcommands reviewer, source and step
	Dir      string // for all files; temporary
	Packages string // folder with node_modules of the client; "" installs them into Dir
	Kinds    []string
	Client   string // ts or claude
	Over     string // http or stdio
	Era      string
	Cases    int           // of each kind
	Takes    time.Duration // how long the work of a case lasts
	Long     time.Duration // and of the first case of each kind; 0 means Takes
	AtOnce   int           // cases at the same time
	Seed     uint64
}

// Check reports what the options have wrong.
func (o *Options) Check() error {
	for name, c := range map[string]struct {
		value string
		of    []string
	}{
		"--kind":   {o.Kinds[0], Kinds},
		"--client": {o.Client, []string{"ts", "claude"}},
		"--over":   {o.Over, []string{"http", "stdio"}},
		"--era":    {o.Era, Eras},
	} {
		if !slices.Contains(c.of, c.value) {
			return fmt.Errorf("%s is one of %s, not %q", name, strings.Join(c.of, ", "), c.value)
		}
	}

	if o.Cases < 1 || o.AtOnce < 1 || o.Takes < time.Second {
		return errors.New("--kills and --at-once are at least 1, and --takes at least 1s")
	}
	if o.Client == "claude" && o.Over == "stdio" {
		o.Kinds = slices.DeleteFunc(slices.Clone(o.Kinds), func(kind string) bool { return kind == "question" })
	}
	if len(o.Kinds) == 0 {
		return errors.New("over stdio Claude Code has a prompt here, and asks nobody")
	}
	if o.Over == "http" && o.Era != Eras[0] {
		return fmt.Errorf("over HTTP there are tasks in %s alone", Eras[0])
	}

	return nil
}

// Prove makes the cases of each kind, prints what came of each, and returns how many went wrong.
func Prove(ctx context.Context, o Options, out io.Writer) (wrong int, err error) {
	client, err := o.install(ctx)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(out, "the client is %s\n", client)

	var all sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, o.AtOnce)
	for _, kind := range o.Kinds {
		for n := range o.Cases {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				t := newTrial(o, kind, n)
				began := time.Now()
				failed := t.prove(ctx)

				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(out, "%s %d over %s, %s: killed %v after it was %s (%v of work), and after its end; took "+
					"%.1fs: %s\n", kind, n+1, o.Over, o.Era, t.killed, t.after, t.takes, time.Since(began).Seconds(),
					t.summary())
				if failed != nil {
					wrong++
					fmt.Fprintf(out, "  WRONG: %s\n  Its files are in %s.\n",
						strings.ReplaceAll(failed.Error(), "\n", "\n  "), t.dir)
				} else {
					err = errors.Join(err, os.RemoveAll(t.dir))
				}
			})
		}
	}

	all.Wait()
	return wrong, errors.Join(err, ctx.Err())
}

// newTrial makes the choices of a case: the moments at which the server is killed. Of three short cases one has its
// moment anywhere from the call to a second after its work would have ended, one soon after the call, and one near the
// end: when the work ends, or while the person's answer is sent. Long ones have three moments. Each server is killed
// once more when its client has the result.
func newTrial(o Options, kind string, n int) *trial {
	random := rand.New(rand.NewPCG(o.Seed, uint64(100*slices.Index(Kinds, kind)+n)))
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(random.Int64N(int64(to-from))) }
	t := &trial{
		Options: o,
		kind:    kind,
		dir:     filepath.Join(o.Dir, fmt.Sprintf("%s-%d", kind, n+1)),
		token:   fmt.Sprintf("%s_%d_%d", kind, n+1, o.Seed),
		takes:   o.Takes,
		after:   "calling",
	}

	switch {
	case o.Long > 0 && n == 0:
		t.takes = o.Long
		for range 3 {
			t.moments = append(t.moments, between(0, t.takes+time.Second))
		}
		slices.Sort(t.moments)
	case n%3 == 1:
		t.moments = []time.Duration{between(0, time.Second)}
	case n%3 == 2 && kind == "question":
		t.after, t.moments = "answered", []time.Duration{between(0, 60*time.Millisecond)}
	case n%3 == 2:
		t.moments = []time.Duration{between(t.takes-500*time.Millisecond, t.takes+500*time.Millisecond)}
	default:
		t.moments = []time.Duration{between(0, t.takes+time.Second)}
	}

	return t
}
