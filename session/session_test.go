package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/state"
)

func TestWhatACallerMay(t *testing.T) {
	testkit.Same(t, CallerOf(t.Context()), Caller{}, "outside a call")
	local := LocalCaller(ChannelStdio)
	testkit.Same(t, CallerOf(WithCaller(t.Context(), local)), local)
	for rights, want := range map[Rights]bool{RightAgents | RightMerge: true, RightMerge: true, RightPerson: false, RightAgents | RightPerson: false, 0: true} {
		testkit.Equal(t, local.Has(rights), want, "%v", rights)
	}
	for channel, want := range map[string]bool{ChannelStdio: false, ChannelHTTP: true, ChannelSSE: true, ChannelTerminal: false, ChannelPage: false} {
		testkit.Equal(t, LocalCaller(channel).Remote(), want, "%s", channel)
	}
	testkit.Equal(t, AwaitingStep{SessionID: "0123abcd", Step: "a", Review: true}.Command(), "deepwork sessions review 0123abcd a")
	testkit.Equal(t, AwaitingStep{SessionID: "0123abcd", Step: "a[2]"}.Command(), "deepwork sessions override 0123abcd 'a[2]' --reason TEXT")
	testkit.Equal(t, AwaitingStep{SessionID: "0123abcd", Step: "a"}.Command(), "deepwork sessions override 0123abcd a --reason TEXT")
	testkit.Equal(t, InShell("/home/jörg/it's mine"), `'/home/jörg/it'\''s mine'`)
}

func TestWordsAndErrors(t *testing.T) {
	for d, want := range map[time.Duration]string{-1: "0s", 0: "0s", time.Minute - 1: "59s", time.Minute: "1m", time.Hour - 1: "59m", time.Hour: "1h", 48*time.Hour - 1: "47h", 48 * time.Hour: "2d"} {
		testkit.Equal(t, Ago(d), want)
	}
	testkit.Equal(t, TookMS(1234567*time.Nanosecond).String(), "took_ms=1.235")
	for _, c := range [][3]time.Duration{{-1, 0, 0}, {-1, 5, 5}, {3, 0, 3}, {3, 5, 3}, {5, 3, 3}, {0, 3, 0}} { // for the call, as configured, expected
		ctx := t.Context()
		if c[0] >= 0 {
			ctx = WithReplyWithin(ctx, c[0])
		}
		testkit.Equal(t, ReplyWithin(ctx, c[1]), c[2], "%v", c)
	}
	cause := errors.New("cause")
	err := NotNow("busy", "Call %s again.", "it").With("n", 1).With("m", 2).Because(cause).Wait(time.Second)
	testkit.Equal(t, err.Error(), "StateError: Waiting: Call it again.")
	testkit.Same(t, *err.Waiting(), Waiting{"busy", 1000})
	testkit.FailsWith(t, err, cause)
	testkit.True(t, CodeOf(errors.Join(cause, err)) == "busy" && CodeOf(cause) == "" && err.Details["n"] == 1 && err.Details["m"] == 2 && Wrong("x", "y").Waiting() == nil, "%+v", err)
}

// A project is copied only while no server uses it, and none starts meanwhile.
func TestServersAreHeldOff(t *testing.T) {
	t.Setenv(state.Env, testkit.Dir(t))
	f := testkit.Get(state.Find(testkit.Dir(t))).Must(t)
	unlock := testkit.Get(HoldServers(t.Context(), f)).Must(t)
	testkit.Fails(t, NewMember(f, nil).Enter(t.Context()), "is being copied between stores")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.Fails(t, testkit.Get(HoldServers(ended, f)).Err(), "locking")
	unlock()
	m := NewMember(f, nil)
	testkit.Must(t, m.Enter(t.Context()))
	testkit.Fails(t, testkit.Get(HoldServers(t.Context(), f)).Err(), "a server runs on this project")
	testkit.Must(t, m.Leave())
	testkit.Get(HoldServers(t.Context(), f)).Must(t)()
	here := testkit.Get(PlaceOf(f)).Must(t)
	testkit.True(t, here.MachineID != "" && here.MachineName != "" && here.Root == f.Root, "%+v", here)
}

func TestFoldersOfSessions(t *testing.T) {
	t.Setenv(state.Env, testkit.Dir(t))
	root := testkit.Dir(t)
	f := testkit.Get(state.Find(root)).Must(t)
	ignore := filepath.Join(root, ".deepwork", ".gitignore")
	testkit.Must(t, os.MkdirAll(f.Tmp(), 0o700))
	testkit.Write(t, filepath.Join(f.Tmp(), ".gitignore"), "*\n")
	testkit.Must(t, MakeSessions(f, nil))
	if _, err := os.Stat(ignore); err == nil {
		t.Error("a folder that hides itself is hidden again")
	}
	testkit.Must(t, os.Remove(filepath.Join(f.Tmp(), ".gitignore")))
	testkit.Must(t, MakeSessions(f, nil))
	testkit.ContainsAll(t, string(testkit.Get(os.ReadFile(ignore)).Must(t)), Ignored())
	testkit.Must(t, os.RemoveAll(f.Tmp()))
	testkit.Must(t, os.Symlink(testkit.Dir(t), f.Tmp()))
	testkit.Fails(t, MakeSessions(f, nil), "leads out of the project")
	file := filepath.Join(root, "file")
	testkit.Write(t, file, "")
	if err := MakeFolder(filepath.Join(file, "below")); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}
