package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/state"
)

func TestIgnore(t *testing.T) {
	dir := t.TempDir()
	ignores := func(path string, lines []string, added bool, holds, says string) {
		t.Helper()
		did, err := Ignore(path, lines)
		testkit.Equal(t, did, added, "%s: %v", path, err)

		if says != "" {
			testkit.Fails(t, err, says)
			return
		}
		testkit.Works(t, err)
		testkit.Equal(t, string(testkit.Get(os.ReadFile(path)).Must(t)), holds, "%s holds", path)
	}
	for name, c := range map[string]struct {
		there, want string
		added       bool
	}{
		"empty":               {"", "tmp/\nlogs/\n", true},
		"mine":                {"mine\n", "mine\ntmp/\nlogs/\n", true},
		"no line break":       {"mine\ntmp/", "mine\ntmp/\nlogs/\n", true},
		"of Windows":          {"mine\r\ntmp/", "mine\r\ntmp/\r\nlogs/\r\n", true},
		"all there":           {"logs/\n  tmp/  \n", "logs/\n  tmp/  \n", false},
		"with slashes before": {"/logs/\n/tmp/\n", "/logs/\n/tmp/\n", false},
		"a longer one":        {"tmp/x\n", "tmp/x\ntmp/\nlogs/\n", true},
	} {
		path := filepath.Join(dir, name)
		testkit.Write(t, path, c.there)
		ignores(path, []string{"tmp/", "logs/"}, c.added, c.want, "")
		ignores(path, []string{"tmp/", "logs/"}, false, c.want, "")
	}
	path := filepath.Join(dir, "new", ".deepwork", ".gitignore")
	ignores(path, Ignored(), true, "tmp/\n", "")
	ignores(filepath.Join(path, "in", ".gitignore"), Ignored(), false, "", path)
	ignores(dir, Ignored(), false, "", dir+" cannot be read: it is a folder, not a file")
	link := filepath.Join(dir, "link")
	hard := filepath.Join(dir, "hard")
	profile := filepath.Join(dir, "profile")
	testkit.Write(t, profile, "mine\n")
	if os.Symlink(profile, link) == nil {
		ignores(link, Ignored(), false, "", "it is a symbolic link")
	}
	if os.Link(profile, hard) == nil {
		ignores(hard, Ignored(), true, "mine\ntmp/\n", "")
	}
	testkit.Equal(t, string(testkit.Get(os.ReadFile(profile)).Must(t)), "mine\n", "through a link")
}

// What is refused because a script or the config has changed since its approval names that.
func TestField21_RefusalsNameWhatChanged(t *testing.T) {
	ci := config.Asked{Key: config.SourcesKey + "ci", Text: "./ci.sh"}
	for _, c := range []struct {
		changed []string
		want    string
	}{
		{nil, ""},
		{[]string{"ci.sh", "git.branch in .deepwork/config.yml"},
			" Changed since the last approval: ci.sh, git.branch in .deepwork/config.yml."},
		{[]string{"a.sh", strings.Repeat("b", 1000)}, " Changed since the last approval: a.sh, bbb"},
	} {
		a := &config.Approval{Withheld: &config.Withheld{
			Asked:   []config.Asked{{Key: config.AgentsKey, Text: "may be started"}, ci},
			Changed: c.changed,
		}}
		cfg := config.Default()
		cfg.Approval = a
		for what, text := range map[string]string{
			"a source":   Untrusted("/my p", a, config.SourcesKey).Error(),
			"an agent":   Untrusted("/my p", a, config.AgentsKey).Error(),
			"sources":    UntrustedSources("/my p", cfg, "Not asked:").Error(),
			"the notice": UntrustedNotice("/my p", &config.Config{Approval: a}),
		} {
			testkit.Contains(t, text, "`deepwork trust --path '/my p'` in a terminal", what)
			testkit.True(t, strings.Contains(text, c.want) &&
				(c.want != "" || !strings.Contains(text, "Changed since")), "%s, changed %q: %s", what, c.changed, text)
		}
	}
}

// Whatever is not in force is named, to a bound, with what helps; what was approved needs no word.
func TestWhatIsNotApproved(t *testing.T) {
	var asked []config.Asked
	for i := range 11 {
		asked = append(asked, config.Asked{Key: fmt.Sprint(config.SourcesKey, "s", i), Text: "./ci"})
	}
	agents := config.Asked{Key: config.AgentsKey}
	approval := func(w config.Withheld) *config.Approval { return &config.Approval{Withheld: &w} }
	cfg := config.Default()
	for n, want := range map[int]string{5: "'s4' (./ci). Nothing", 6: "'s4' (./ci), 1 more. Nothing"} {
		cfg.Approval = approval(config.Withheld{Asked: asked[:n]})
		testkit.Contains(t, UntrustedSources("/p", cfg, "Not asked:").Error(), want)
	}
	testkit.Contains(t, UntrustedSources("/p", cfg, "Not asked:", "s3").Error(), "Not asked: 's3' (./ci). Nothing")
	testkit.Works(t, UntrustedSources("/p", cfg, "Not asked:", "s9"))
	for n, want := range map[int]string{10: "s9), so", 11: "s9, 1 more), so"} {
		a := approval(config.Withheld{Asked: append([]config.Asked{agents}, asked[:n]...)})
		testkit.Contains(t, UntrustedNotice("/p", &config.Config{Approval: a}), want)
	}
	denied := approval(config.Withheld{Asked: append(asked[:1:1], agents), Denied: true})
	faulty := approval(config.Withheld{Asked: asked[:1], Fault: "it is a link"})
	kept := approval(config.Withheld{Asked: asked[:1]})
	kept.Use = cfg
	testkit.ContainsAll(t, Untrusted("/p", denied, config.AgentsKey, "codex", "exec").Error(),
		[]string{"Everything that would run in the project /p was denied",
			"start a coding agent in it: codex exec. Nothing", "A person can change that"})
	testkit.Contains(t, Untrusted("/my p", approval(config.Withheld{Asked: asked[:1]}), config.SourcesKey).Error(),
		"`deepwork trust --path '/my p'`")
	testkit.Contains(t, Untrusted("/p", denied, config.SourcesKey).Error(),
		"A config asks to run or use ./ci")
	testkit.Contains(t, Untrusted("/p", faulty, config.SourcesKey).Error(),
		"It cannot be approved: it is a link. Ask the user to correct that, then run")
	testkit.Contains(t, UntrustedNotice("/p", &config.Config{Approval: denied}),
		"The user denied everything that would run in this project (workflow_tools.sources.s0), so it is not in force")
	testkit.Contains(t, UntrustedNotice("/p", &config.Config{Approval: kept}),
		"so what was approved before stays in force")

	for _, a := range []*config.Approval{nil, {}, kept} {
		testkit.Works(t, Untrusted("/p", a, config.SourcesKey))
	}
	testkit.Works(t, Untrusted("/p", faulty, config.AgentsKey), "agents were not asked for")
	plain := approval(config.Withheld{Asked: []config.Asked{agents}})
	for _, a := range []*config.Approval{nil, {}, plain} {
		testkit.Equal(t, UntrustedNotice("/p", &config.Config{Approval: a}), "")
	}
	own := &config.Config{Approval: plain, QualityGate: config.QualityGate{AgentReviewCommand: []string{"judge"}}}
	testkit.Contains(t, UntrustedNotice("/p", own), "their own reviewer does not run in it")
	testkit.Contains(t, Untrusted("/p", plain, config.ReviewerKey, "judge", "-x").Error(),
		"This would start the reviewer in it: judge -x. Nothing was run or changed.")
}

func TestWhatACallerMay(t *testing.T) {
	testkit.Same(t, CallerOf(t.Context()), Caller{}, "outside a call")
	local := LocalCaller(ChannelStdio)
	testkit.Same(t, CallerOf(WithCaller(t.Context(), local)), local)

	for rights, want := range map[Rights]bool{
		RightAgents | RightMerge:  true,
		RightMerge:                true,
		RightPerson:               false,
		RightAgents | RightPerson: false,
		0:                         true,
	} {
		testkit.Equal(t, local.Has(rights), want, "%v", rights)
	}

	for channel, want := range map[string]bool{
		ChannelStdio:    false,
		ChannelHTTP:     true,
		ChannelSSE:      true,
		ChannelTerminal: false,
		ChannelPage:     false,
	} {
		testkit.Equal(t, LocalCaller(channel).Remote(), want, "%s", channel)
	}
	testkit.Equal(t, AwaitingStep{SessionID: "0123abcd", Step: "a", Review: true}.Command(),
		"deepwork sessions review 0123abcd a")
	testkit.Equal(t, AwaitingStep{SessionID: "0123abcd", Step: "a[2]"}.Command(),
		"deepwork sessions override 0123abcd 'a[2]' --reason TEXT")
	testkit.Equal(t, AwaitingStep{SessionID: "0123abcd", Step: "a"}.Command(),
		"deepwork sessions override 0123abcd a --reason TEXT")

	if runtime.GOOS != "windows" {
		for _, word := range []string{"a[2]", "/my projects/$HOME", "it's(1)&co", "/plain/p-1_x.y:z", ""} {
			testkit.Equal(t, string(testkit.Get(exec.Command("sh", "-c", "printf %s "+InShell(word)).Output()).Must(t)),
				word, "at a shell")
		}
	}
}

func TestWordsAndErrors(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1:               "0s",
		0:                "0s",
		time.Minute - 1:  "59s",
		time.Minute:      "1m",
		time.Hour - 1:    "59m",
		time.Hour:        "1h",
		48*time.Hour - 1: "47h",
		48 * time.Hour:   "2d",
	} {
		testkit.Equal(t, Ago(d), want)
	}
	testkit.Equal(t, TookMS(1234567*time.Nanosecond).String(), "took_ms=1.235")

	// for the call, as configured, expected
	for _, c := range [][3]time.Duration{{-1, 0, 0}, {-1, 5, 5}, {3, 0, 3}, {3, 5, 3}, {5, 3, 3}, {0, 3, 0}} {
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
	testkit.Equal(t, CodeOf(errors.Join(cause, err)), "busy")
	testkit.Equal(t, CodeOf(cause), "")
	testkit.True(t, err.Details["n"] == 1, "%+v", err)
	testkit.True(t, err.Details["m"] == 2, "%+v", err)
	testkit.True(t, Wrong("x", "y").Waiting() == nil, "%+v", err)
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
	testkit.True(t, here.MachineID != "", "%+v", here)
	testkit.True(t, here.MachineName != "", "%+v", here)
	testkit.Equal(t, here.Root, f.Root)
}

func TestFoldersOfSessions(t *testing.T) {
	t.Setenv(state.Env, testkit.Dir(t))
	root := testkit.Dir(t)
	f := testkit.Get(state.Find(root)).Must(t)
	ignore := filepath.Join(root, ".deepwork", ".gitignore")
	testkit.Must(t, os.MkdirAll(f.Tmp(), 0o700))
	testkit.Write(t, filepath.Join(f.Tmp(), ".gitignore"), "*\n")
	testkit.Must(t, MakeSessions(f, nil))
	testkit.FailsWith(t, testkit.Get(os.Stat(ignore)).Err(), os.ErrNotExist,
		"a folder that hides itself is hidden again")
	testkit.Must(t, os.Remove(filepath.Join(f.Tmp(), ".gitignore")))
	if runtime.GOOS != "windows" { // a device fills no memory
		testkit.Must(t, os.Symlink("/dev/zero", filepath.Join(f.Tmp(), ".gitignore")))
	}
	testkit.Must(t, MakeSessions(f, nil))
	testkit.ContainsAll(t, string(testkit.Get(os.ReadFile(ignore)).Must(t)), Ignored())
	testkit.Must(t, errors.Join(os.RemoveAll(f.Tmp()), os.Symlink(testkit.Dir(t), f.Tmp())))
	testkit.Fails(t, MakeSessions(f, nil), "leads out of the project")

	file := filepath.Join(root, "file")
	testkit.Write(t, file, "")
	testkit.Fails(t, MakeFolder(filepath.Join(file, "below")), file)
}
