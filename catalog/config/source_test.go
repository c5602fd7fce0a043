package config

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*Source, *testkit.Log) {
	t.Helper()
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, ".deepwork"), 0o755))
	s, log := Open(root), new(testkit.Log)
	s.Logger = slog.New(slog.NewTextHandler(log, nil))
	return s, log
}

var must = testkit.Must

// parsed returns the config of a file without faults, and parsedUser that of a user's own.
func parsed(t *testing.T, text string) *Config {
	t.Helper()
	c, faults := Parse("config.yml", []byte(text))
	must(t, faults.Err())
	return c
}

func parsedUser(t *testing.T, text string) *User {
	t.Helper()
	u, faults := ParseUser("config.yml", []byte(text))
	must(t, faults.Err())
	return u
}

func put(t *testing.T, s *Source, text string) {
	t.Helper()
	must(t, os.WriteFile(s.Path(), []byte(text), 0o644))
}

func current(t *testing.T, s *Source) *Config {
	t.Helper()
	return testkit.Get(s.Current(t.Context())).Must(t)
}

const (
	create = "git:\n  branch: create\nquality_gate:\n  default_max_attempts: 7\n"
	bad    = "git:\n  branch: nowhere\n"
)

func TestEditTakesEffectAtOnce(t *testing.T) {
	testkit.Same(t, current(t, Open(filepath.Join(t.TempDir(), "no", "such", "folder"))), Default())
	s, _ := open(t)
	testkit.Equal(t, current(t, s).Git.Branch, BranchName, "at first")
	put(t, s, create)
	first := current(t, s)
	testkit.Equal(t, first.Git.Branch, BranchCreate, "after a write: %+v", first)
	testkit.Equal(t, current(t, s), first, "another config though nothing changed")
	temp := s.Path() + ".tmp"
	must(t, os.WriteFile(temp, []byte("git: {branch: checkout}\n"), 0o644))
	must(t, os.Rename(temp, s.Path()))
	testkit.Equal(t, current(t, s).Git.Branch, BranchCheckout)
}

func TestBadEditLeavesTheLastGoodOne(t *testing.T) {
	s, log := open(t)
	put(t, s, create)
	good := current(t, s)
	put(t, s, bad)
	for range 3 {
		testkit.Equal(t, current(t, s), good, "serves")
	}
	testkit.Equal(t, log.Count("config.yml:2:11: git.branch"), 1, "logged … times")
	testkit.Equal(t, log.Count("the last good one stays in use"), 1, "logged … times")
	put(t, s, bad+"nonsense: 1\n")
	current(t, s)
	testkit.Equal(t, log.Count("nonsense: unknown key"), 1, "another fault logged … times")
	put(t, s, create)
	c := current(t, s)
	testkit.True(t, c == good && log.Count("good again") == 1, "after the correction: %+v", c)
}

func TestBadSinceStartIsAnError(t *testing.T) {
	s, log := open(t)
	put(t, s, bad)
	for range 2 {
		c, err := s.Current(t.Context())
		testkit.Need(t, c == nil && err != nil, "%+v %v", c, err)
		faults, ok := errors.AsType[job.Diagnostics](err)
		testkit.True(t, ok && len(faults) == 1 && faults[0].Line == 2 && faults[0].Column == 11, "error %v", err)
		testkit.Contains(t, err.Error(), s.Path(), "the error does not say which file: %v", err)
	}
	testkit.Equal(t, log.Count("configuration refused; calls are, too"), 1, "logged … times")
	put(t, s, create)
	testkit.Equal(t, current(t, s).Git.Branch, BranchCreate)
}

func TestFileThatCannotBeReadIsAnError(t *testing.T) {
	s, _ := open(t)
	must(t, os.Mkdir(s.Path(), 0o755))
	testkit.Fails(t, testkit.Get(s.Current(t.Context())).Err(), "", "a directory is accepted")
	must(t, os.Remove(s.Path()))
	put(t, s, strings.Repeat("#", MaxBytes+1))
	testkit.Fails(t, testkit.Get(s.Current(t.Context())).Err(), "1048577 bytes", "a huge file")
	must(t, os.Remove(s.Path()))
	testkit.Same(t, current(t, s), Default(), "after it is gone")
}

// TestSaveInProgress is what a save looks like in the middle: the last good
// config stays for 500 ms, then the file is taken for what it is.
func TestSaveInProgress(t *testing.T) {
	for name, tear := range map[string]func(t *testing.T, s *Source){
		"missing": func(t *testing.T, s *Source) { must(t, os.Remove(s.Path())) },
		"empty":   func(t *testing.T, s *Source) { must(t, os.Truncate(s.Path(), 0)) },
		"half":    func(t *testing.T, s *Source) { must(t, os.Truncate(s.Path(), int64(strings.Index(create, "quality")))) },
	} {
		t.Run(name, func(t *testing.T) {
			s, log := open(t)
			synctest.Test(t, func(t *testing.T) {
				put(t, s, create)
				good := current(t, s)
				tear(t, s)
				testkit.Equal(t, current(t, s), good, "at once")
				time.Sleep(450 * time.Millisecond)
				testkit.Equal(t, current(t, s), good, "after 450 ms")
				time.Sleep(100 * time.Millisecond)
				testkit.Equal(t, current(t, s).QualityGate.DefaultMaxAttempts, 3, "after 550 ms")
				testkit.Equal(t, log.Count("refused"), 0, "logged … times")
			})
		})
	}
}

func TestConcurrentCallsAgree(t *testing.T) {
	s, _ := open(t)
	put(t, s, create)
	got := make([]*Config, 16)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = current(t, s) })
	}
	wg.Wait()
	for _, c := range got {
		testkit.Equal(t, c, got[0], "the file was read more than once")
	}
}

func TestCallWhoseContextIsOverDoesNotWait(t *testing.T) {
	s, _ := open(t)
	put(t, s, create) // too young to be believed
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.FailsWith(t, testkit.Get(s.Current(ctx)).Err(), context.Canceled, "error")
	testkit.Equal(t, current(t, s).Git.Branch, BranchCreate)
}

func TestReq003_4_4_ARefusedEditIsTold(t *testing.T) {
	s, _ := open(t)
	for _, c := range []struct{ enabled, fault string }{{"true", ""}, {"maybe", "config.yml:1:27: workflow_tools.enabled"}, {"false", ""}} {
		put(t, s, "workflow_tools: {enabled: "+c.enabled+"}\n")
		current(t, s)
		if c.fault == "" {
			testkit.Works(t, s.Refused())
			continue
		}
		testkit.Fails(t, s.Refused(), c.fault)
	}
}
