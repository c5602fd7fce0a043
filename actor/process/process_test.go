package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
)

// run is process.Run for a test; it fails where that takes absurdly long.
func run(t *testing.T, ctx context.Context, s process.Spec) (process.Result, *process.Error) {
	t.Helper()
	began := time.Now()
	r, err := process.Run(ctx, s)
	d := time.Since(began)
	testkit.True(t, d <= patience, "Run took %v", d)
	if err == nil {
		return r, nil
	}
	e, ok := errors.AsType[*process.Error](err)
	testkit.Need(t, ok, "the error is a %T: %v", err, err)
	return r, e
}

func TestStdinIsFedAndStdoutRead(t *testing.T) {
	t.Parallel()
	for _, in := range [][]byte{nil, {}, []byte("z"), bytes.Repeat([]byte("z"), 100_000), bytes.Repeat([]byte("z"), 3<<20)} {
		s := spec(t, "echo", nil)
		s.Stdin, s.StdoutLimit = in, 4<<20
		r, err := run(t, t.Context(), s)
		if err != nil || !bytes.Equal(r.Stdout, in) || r.ExitCode != 0 {
			t.Errorf("of %d bytes %d came back; exit code %d, %v", len(in), len(r.Stdout), r.ExitCode, err)
		}
	}
}

func TestChildThatDoesNotReadItsInput(t *testing.T) {
	t.Parallel()
	s := spec(t, "noread", nil)
	s.Stdin = make([]byte, 5<<20)
	r, fault := run(t, t.Context(), s)
	testkit.Need(t, fault == nil, "%v", fault)
	testkit.Equal(t, r.ExitCode, 0, "exit code")
}

func TestNoShellReadsTheArguments(t *testing.T) {
	t.Parallel()
	dir := testkit.Dir(t)
	s := spec(t, "tell", nil)
	s.Dir = dir
	args := []string{"a b", "$HOME", "*", "'", `"`, "; exit 3", "", "--", "ä"}
	s.Command = append(s.Command, args...)
	s.Env = append(s.Env, "TELL=first", "TELL=last")
	r, fault := run(t, t.Context(), s)
	testkit.Need(t, fault == nil, "%v", fault)
	var told struct {
		Args []string
		Dir  string
		Env  string
	}
	testkit.Must(t, json.Unmarshal(r.Stdout, &told))
	testkit.True(t, fmt.Sprint(told.Args) == fmt.Sprint(args) && told.Dir == dir && told.Env == "last", "the child was given %+v", told)
}

func TestExitCodeAndLastLines(t *testing.T) {
	t.Parallel()
	s := spec(t, "fail", nil)
	s.StderrLimit = 5000
	r, err := run(t, t.Context(), s)
	testkit.Need(t, err != nil && err.Kind == process.Exit && err.ExitCode == 3 && r.ExitCode == 3, "got %+v", err)
	if len(r.Stderr) > 5000 || len(r.Stderr) < 4900 || !strings.HasPrefix(r.Stderr, "line ") || !strings.HasSuffix(r.Stderr, "line 9999\n") {
		t.Errorf("%d bytes of standard error were kept, from %.20q", len(r.Stderr), r.Stderr)
	}
	testkit.Equal(t, string(r.Stdout), "out\n", "standard output is %q", r.Stdout)
	testkit.True(t, len(err.Tail) <= 2000 && strings.HasPrefix(err.Tail, "line ") && strings.HasSuffix(err.Tail, "line 9999"), "the tail is %q", err.Tail)
	testkit.ContainsAll(t, err.Error(), []string{s.Command[0], "exit code 3", "line 9999"}, "the message")
}

func TestTailIsOfTheOutputWhereStderrIsEmpty(t *testing.T) {
	t.Parallel()
	_, err := run(t, t.Context(), spec(t, "failout", nil))
	testkit.True(t, err != nil && err.ExitCode == 4 && err.Tail == "first\nlast", "got %+v", err)
}

func TestTooMuchOutputKills(t *testing.T) {
	t.Parallel()
	s := spec(t, "exactly", nil)
	s.StdoutLimit = 1000
	r, fault := run(t, t.Context(), s)
	testkit.Need(t, fault == nil, "%v", fault)
	testkit.Equal(t, len(r.Stdout), 1000, "bytes at the limit")
	s.StdoutLimit = 999
	r, err := run(t, t.Context(), s)
	testkit.Need(t, err != nil && err.Kind == process.TooMuchOutput && len(r.Stdout) == 999, "one byte more: %d bytes, %v", len(r.Stdout), err)
	s = spec(t, "flood", nil)
	s.Grace = time.Hour // it is not waited for
	r, err = run(t, t.Context(), s)
	testkit.True(t, errors.Is(err, process.ErrTooMuchOutput) && len(r.Stdout) == process.DefaultStdoutLimit, "a flood: %d bytes, %v", len(r.Stdout), err)
	testkit.Contains(t, err.Error(), "more than 1048576 bytes", "the message is %v", err)
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	h := testkit.NewHub(t)
	ctx := deadline{t.Context(), make(chan struct{})}
	all := make(chan *testkit.Visitor, 1)
	go func() { all <- h.Next(); close(ctx.over) }()
	_, err := run(t, ctx, spec(t, "hang", h))
	testkit.True(t, err != nil && err.Kind == process.Timeout && errors.Is(err, context.DeadlineExceeded), "got %v", err)
	if v := <-all; v != nil {
		v.Gone()
	}
}

// A deadline is a context whose time is over when the test says so.
type deadline struct {
	context.Context
	over chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.over }

func (d deadline) Err() error {
	select {
	case <-d.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestCancelIsToldByTheContext(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("nothing to obey")
	}
	h := testkit.NewHub(t)
	ctx, all := cancelWhen(t, h, 1)
	r, err := run(t, ctx, spec(t, "obedient", h))
	// It tidied up and exited with 0, and yet it did not do what it was for.
	testkit.True(t, err != nil && err.Kind == process.Cancelled && errors.Is(err, context.Canceled), "got %v", err)
	testkit.Equal(t, string(r.Stdout), "tidied up\n", "it wrote")
	testkit.Equal(t, r.ExitCode, 0, "it wrote")
	for _, v := range <-all {
		v.Gone()
	}
}

func TestDescendantsHaveTheGracePeriodToo(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("nothing to obey")
	}
	h := testkit.NewHub(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := spec(t, "gentle", h)
	s.Grace = time.Hour
	done := make(chan string, 1)
	go func() {
		r, _ := process.Run(ctx, s)
		done <- string(r.Stdout)
	}()
	first, second := h.Next(), h.Next()
	cancel()
	child := h.Next()
	parent := first
	if parent.PID == child.PID {
		parent = second
	}
	parent.Gone()
	testkit.True(t, child.Alive(), "it was killed as soon as its parent had ended")
	began := time.Now()
	child.Write([]byte("x"))
	testkit.Equal(t, <-done, "tidied up\n", "it wrote")
	d := time.Since(began)
	testkit.True(t, d <= patience, "the grace period was waited for to its end (%v), though all were gone", d)
}

func TestDescendantsDoNotSurviveANormalExit(t *testing.T) {
	t.Parallel()
	h := testkit.NewHub(t)
	began := time.Now()
	r, err := run(t, t.Context(), spec(t, "orphan", h))
	testkit.True(t, err == nil && string(r.Stdout) == "done\n" && !r.Left, "got %q, %v; something is left: %v", r.Stdout, err, r.Left)
	d := time.Since(began)
	testkit.True(t, d <= patience, "a descendant that holds the pipes delayed Run by %v", d)
	h.Next().Gone()
}

func TestWhoLeftTheGroupDoesNotDelayTheEnd(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("nobody can leave")
	}
	h := testkit.NewHub(t)
	r, err := run(t, t.Context(), spec(t, "escape", h))
	testkit.True(t, err == nil && string(r.Stdout) == "done\n" && r.Left, "got %q, %v; something is left: %v", r.Stdout, err, r.Left)
	v := h.Next()
	testkit.True(t, v.Alive(), "it had left the group and is gone: the test tests nothing")
	p, _ := os.FindProcess(v.PID)
	p.Kill()
	v.Gone()
}

func TestOverBeforeItBegan(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("nobody waits"))
	_, err := run(t, ctx, process.Spec{Command: []string{"no-such-program-here"}})
	testkit.True(t, err != nil && err.Kind == process.Cancelled && strings.Contains(err.Error(), "nobody waits"), "got %v", err)
}

func TestProgramsThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode fs.FileMode) string {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), mode))
		return name
	}
	plain := write("plain", "text", 0o600)
	headless := write("headless", "#!/no/such/interpreter\n", 0o700)
	self, _ := os.Executable()
	cases := map[string]struct {
		spec process.Spec
		kind process.Kind
		want []string
		is   error
	}{
		"none":           {process.Spec{}, process.Start, []string{"no program"}, nil},
		"empty":          {process.Spec{Command: []string{"", "x"}}, process.Start, []string{"no program"}, nil},
		"not in PATH":    {process.Spec{Command: []string{"no-such-program-here"}}, process.NotFound, []string{`"no-such-program-here"`, "PATH"}, exec.ErrNotFound},
		"missing file":   {process.Spec{Command: []string{"./missing"}, Dir: dir}, process.NotFound, []string{`"./missing"`}, fs.ErrNotExist},
		"not executable": {process.Spec{Command: []string{"./" + plain}, Dir: dir}, process.Start, []string{`"./plain"`, "not an executable"}, fs.ErrPermission},
		"no interpreter": {process.Spec{Command: []string{"./" + headless}, Dir: dir}, process.Start, []string{`"./headless"`, "first line"}, fs.ErrNotExist},
		"missing dir":    {process.Spec{Command: []string{self}, Dir: filepath.Join(dir, "gone")}, process.Start, []string{"working directory", "gone"}, fs.ErrNotExist},
		"file as dir":    {process.Spec{Command: []string{self}, Dir: filepath.Join(dir, plain)}, process.Start, []string{"working directory", "not a directory"}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && (name == "not executable" || name == "no interpreter") {
				t.Skip("there is no such thing here")
			}
			r, err := run(t, t.Context(), c.spec)
			testkit.Need(t, err != nil && err.Kind == c.kind && r.ExitCode == -1 && (c.is == nil || errors.Is(err, c.is)), "got %+v", err)
			testkit.ContainsAll(t, err.Error(), c.want, "the message")
		})
	}
}

func TestRelativeProgramsAreRelativeToDir(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the script is for a Unix shell")
	}
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "say"), []byte("#!/bin/sh\necho here\n"), 0o700))
	r, err := run(t, t.Context(), process.Spec{Command: []string{"./say"}, Dir: dir})
	testkit.True(t, err == nil && string(r.Stdout) == "here\n", "got %q, %v", r.Stdout, err)
}

func TestTail(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		"  \n a \n":                "a",
		"\x1b[1;31mred\x1b[0m\r\n": "red",
		"\x1b]0;title\x07x":        "x",
		"one\ntwo\nthree":          "two\nthree",
		"äöüäöüäöüäöü":             "öüäöü",
		"bad \xff\xfe text":        "bad  text",
	} {
		testkit.Equal(t, process.Tail(in, 10), want, "Tail(%q)", in)
	}
}

// A program that is named without a path is not found where others may have put one.
func TestLook(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("programs have an extension there")
	}
	dir := testkit.Dir(t)
	at := func(path string) string { return filepath.Join(dir, path) }
	for _, name := range []string{"project/bin/tool", "other/bin/tool", "shut/tool"} {
		testkit.Write(t, at(name), "#!/bin/sh\n")
		testkit.Must(t, os.Chmod(at(name), 0o755))
	}
	testkit.Must(t, os.Chmod(at("shut/tool"), 0o644))
	testkit.Must(t, os.Symlink(at("project"), at("link")))
	testkit.Must(t, os.Mkdir(at("links"), 0o755))
	testkit.Must(t, os.Symlink(at("project/bin/tool"), at("links/tool")))
	t.Chdir(at("project"))
	for _, c := range []struct{ path, avoid, want string }{
		{"project/bin other/bin", "", "project/bin/tool"},
		{"project/bin other/bin", "project", "other/bin/tool"},
		{"link/bin links other/bin", "project", "other/bin/tool"},
		{"project/bin", "link", ""},
		{"other/bin", "oth", "other/bin/tool"},
		{"shut", "", "permission"},
		{"shut other/bin", "", "other/bin/tool"},
	} {
		list := []string{"bin", ""}
		for name := range strings.FieldsSeq(c.path) {
			list = append(list, at(name))
		}
		t.Setenv("PATH", strings.Join(list, ":"))
		var outside []string
		if c.avoid != "" {
			outside = []string{at(c.avoid)}
		}
		got, err := process.Look("tool", outside...)
		switch c.want {
		case "permission":
			testkit.FailsWith(t, err, fs.ErrPermission)
		case "":
			testkit.FailsWith(t, err, exec.ErrNotFound)
		default:
			testkit.Equal(t, got, at(c.want), "%+v", c)
		}
	}
	t.Setenv("PATH", at("project/bin"))
	process.Avoid(at("project"))
	process.Avoid(at("project"))
	testkit.FailsWith(t, testkit.Get(process.Look("tool")).Err(), exec.ErrNotFound)
	testkit.True(t, process.Bare("tool") && !process.Bare("./tool") && !process.Bare("bin/tool"), "what has a path")
	testkit.Equal(t, process.Resolved(at("link/bin/../none")), at("link/none"))
}
