package worktree

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The test binary is also the server that is killed: crashEnv says what it does
// and at which of its points it ends.
const crashEnv = "WORKTREE_TEST_CRASH"

type crash struct {
	Dir   string
	Trees []Tree
	Op    string // create, remove, or both; or a key of calls
	Point int    // the n-th one ends it; 0 means none
}

func crashChild() int {
	var c crash
	if err := json.Unmarshal([]byte(os.Getenv(crashEnv)), &c); err != nil {
		panic(err)
	}
	k := New(Options{Dir: c.Dir, Logger: slog.New(slog.DiscardHandler)})
	n := 0
	k.at = func(point string) {
		if n++; n == c.Point {
			self, _ := os.FindProcess(os.Getpid())
			self.Kill()
			select {}
		}
	}
	if call := calls[c.Op]; call != nil {
		if err := call(k, filepath.Join(c.Dir, attemptID, "web")); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("points", n)
		return 0
	}
	if c.Op != "remove" {
		done, err := k.Create(context.Background(), attemptID, branchName, c.Trees, nil)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		if c.Op == "both" {
			if err := work(done[0].Path); err != nil {
				fmt.Println(err)
				return 1
			}
			fmt.Println("worked")
		}
	}
	if c.Op != "create" {
		if _, err := k.Remove(context.Background(), attemptID, nil); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("points", n)
	return 0
}

// work does what an agent does in a worktree.
func work(path string) error {
	for name, text := range map[string]string{"untracked": "u", "a.txt": "changed"} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (c crash) command(t *testing.T) *exec.Cmd {
	t.Helper()
	data, err := json.Marshal(c)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), crashEnv+"="+string(data))
	return cmd
}

// run runs it to its end, and returns how many points it passed.
func (c crash) run(t *testing.T) (points int) {
	t.Helper()
	out, err := c.command(t).Output()
	if c.Point > 0 {
		if err == nil || strings.TrimSpace(string(out)) != "" {
			t.Fatalf("it did not die: %s", out)
		}
		return 0
	}
	if _, scan := fmt.Sscanf(string(out), "points %d", &points); err != nil || scan != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return points
}

// twoTrees are two repositories, one with all that creation can do.
func twoTrees(t *testing.T) []Tree {
	first, second := newRepo(t), newRepo(t)
	write(t, first, ".env", "SECRET=1")
	trees := []Tree{tree(first), {RepoID: "r2", Name: "api", Repo: second, TargetBranch: "main"}}
	trees[0].Copy = []string{".env"}
	if runtime.GOOS != "windows" {
		trees[0].Setup = []string{"sh", "-c", "echo set up >setup.log"}
	}
	return trees
}

func eachPoint(t *testing.T, op string, prepare func(*testing.T, *Keeper, []Tree), check func(*testing.T, *Keeper, []Tree)) {
	measure := func(t *testing.T, point int) (*Keeper, []Tree, int) {
		k, _ := newKeeper(t)
		trees := twoTrees(t)
		prepare(t, k, trees)
		return k, trees, crash{Dir: k.dir, Trees: trees, Op: op, Point: point}.run(t)
	}
	_, _, points := measure(t, 0)
	if points < 15 {
		t.Fatalf("there are only %d points", points)
	}
	for n := 1; n <= points; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			k, trees, _ := measure(t, n)
			check(t, k, trees)
		})
	}
}

func TestCrashAtEachPointOfCreate(t *testing.T) {
	clean := func(t *testing.T, k *Keeper, trees []Tree) {
		for _, tr := range trees {
			sound(t, tr.Repo, 0)
			if out := gitIn(t, tr.Repo, "for-each-ref", "--format=%(refname)"); out != "refs/heads/main" {
				t.Errorf("refs are left: %s", out)
			}
		}
		nothingLeft(t, k)
	}
	for _, c := range []struct {
		name  string
		check func(*testing.T, *Keeper, []Tree)
	}{
		{"finished", func(t *testing.T, k *Keeper, trees []Tree) {
			if _, err := k.Recover(t.Context(), func(string) bool { return true }); err != nil {
				t.Fatal(err)
			}
			done, err := k.Create(t.Context(), attemptID, branchName, trees, nil)
			must(t, err)
			if read(t, done[0].Path, ".env") != "SECRET=1" || read(t, done[1].Path, "a.txt") != "one\ntwo\n" {
				t.Error("a file is missing")
			}
			for _, m := range done {
				if out := gitIn(t, m.Path, "status", "--porcelain", "--branch"); out != "## "+branchName {
					t.Errorf("git status says %q", out)
				}
			}
			if _, err := k.Remove(t.Context(), attemptID, nil); err != nil {
				t.Fatal(err)
			}
			clean(t, k, trees)
		}},
		{"killed again, and finished", func(t *testing.T, k *Keeper, trees []Tree) {
			for point := 2; point <= 4; point++ {
				_ = crash{Dir: k.dir, Trees: trees, Op: "create", Point: point}.command(t).Run() // if it is done before, it ends
			}
			done, err := k.Create(t.Context(), attemptID, branchName, trees, nil)
			must(t, err)
			if _, err := k.Recover(t.Context(), func(string) bool { return true }); err != nil { // sweeps
				t.Fatal(err)
			}
			for i, name := range []string{".env", "a.txt"} {
				if !isThere(filepath.Join(done[i].Path, name)) {
					t.Errorf("%s has no %s", done[i].Path, name)
				}
			}
			if _, err := k.Remove(t.Context(), attemptID, nil); err != nil {
				t.Fatal(err)
			}
			clean(t, k, trees)
		}},
		{"undone", func(t *testing.T, k *Keeper, trees []Tree) {
			if _, err := k.Recover(t.Context(), func(string) bool { return false }); err != nil {
				t.Fatal(err)
			}
			clean(t, k, trees)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachPoint(t, "create", func(*testing.T, *Keeper, []Tree) {}, c.check)
		})
	}
}

func TestCrashAtEachPointOfRemove(t *testing.T) {
	prepare := func(t *testing.T, k *Keeper, trees []Tree) {
		done, err := k.Create(t.Context(), attemptID, branchName, trees, nil)
		must(t, err)
		for _, m := range done {
			must(t, work(m.Path))
		}
		write(t, done[1].Path, "committed", "c")
		commit(t, done[1].Path, "work")
		write(t, done[1].Path, "untracked", "again")
	}
	eachPoint(t, "remove", prepare, func(t *testing.T, k *Keeper, trees []Tree) {
		if _, err := k.Recover(t.Context(), func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Remove(t.Context(), attemptID, nil); err != nil {
			t.Fatal(err)
		}
		nothingLeft(t, k)
		ref := rescueRefs + attemptID
		for i, want := range []string{"u", "again"} {
			sound(t, trees[i].Repo, 0)
			if got := show(t, trees[i].Repo, ref, "untracked"); got != want {
				t.Errorf("%s holds %q", trees[i].Name, got)
			}
			if out := gitIn(t, trees[i].Repo, "for-each-ref", "--format=%(refname)", "refs/deepwork"); out != ref {
				t.Errorf("it was kept more than once: %s", out)
			}
		}
		if show(t, trees[1].Repo, branchName, "committed") != "c" {
			t.Error("a commit is lost")
		}
		if tip, _ := tryGit(trees[0].Repo, "rev-parse", "--verify", "-q", branchName); tip != "" {
			t.Error("a branch without commits is left")
		}
	})
}

// The server is killed in the middle of whatever git is doing.
func TestCrashAtRandomMoments(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 6
	}
	for n := range rounds {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			k, _ := newKeeper(t)
			repo := newRepo(t)
			cmd := crash{Dir: k.dir, Trees: []Tree{tree(repo)}, Op: "both"}.command(t)
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			after := time.Duration(rand.IntN(300)) * time.Millisecond
			timer := time.AfterFunc(after, func() { cmd.Process.Kill() })
			defer timer.Stop()
			text, _ := io.ReadAll(bufio.NewReader(out))
			cmd.Wait()
			worked := strings.Contains(string(text), "worked")
			if _, err := k.Recover(t.Context(), func(string) bool { return worked }); err != nil {
				t.Fatalf("killed after %v: %v", after, err)
			}
			if list, _ := os.ReadDir(k.removed()); len(list) > 0 { // of a move that was not made: kept for an hour
				for _, f := range list {
					if isThere(filepath.Join(k.dir, trashFolder, f.Name())) {
						t.Errorf("%s is left in the trash", f.Name())
					}
					must(t, os.Chtimes(filepath.Join(k.removed(), f.Name()), time.Time{}, time.Now().Add(-2*abandoned)))
				}
				k.sweep()
			}
			if path := filepath.Join(k.dir, attemptID, "web"); isDir(path) {
				if !worked {
					t.Error("a worktree of nobody is left")
				}
				if _, err := k.Remove(t.Context(), attemptID, nil); err != nil {
					t.Fatal(err)
				}
			}
			nothingLeft(t, k)
			sound(t, repo, 0)
			if worked && (show(t, repo, rescueRefs+attemptID, "untracked") != "u" || show(t, repo, rescueRefs+attemptID, "a.txt") != "changed") {
				t.Errorf("killed after %v: work is lost", after)
			}
		})
	}
}
