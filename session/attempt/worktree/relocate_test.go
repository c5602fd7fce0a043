package worktree

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

var must = testkit.Must

// An import that was killed anywhere is finished by the next one.
func TestImportCanBeRepeated(t *testing.T) {
	for _, killed := range []string{"never", "before the journal is removed", "before git is told", "before the folder is moved"} {
		t.Run(killed, func(t *testing.T) {
			repo := newRepo(t)
			earlier, _ := newKeeper(t)
			k, _ := newKeeper(t)
			path := create(t, earlier, repo)
			write(t, path, "new.txt", "work")
			gitdir := filepath.Join(adminOf(filepath.Join(repo, ".git"), path), "gitdir")
			journal, link := read(t, earlier.journalPath(attemptID)), read(t, gitdir)
			must(t, k.Import(t.Context(), earlier.dir, attemptID, branchName))
			if stage := slices.Index([]string{"before the journal is removed", "before git is told", "before the folder is moved"}, killed); stage >= 0 {
				must(t, os.WriteFile(earlier.journalPath(attemptID), []byte(journal), 0o600))
				if stage >= 1 {
					must(t, os.WriteFile(gitdir, []byte(link), 0o644))
				}
				if stage >= 2 {
					must(t, os.Rename(k.folder(attemptID), earlier.folder(attemptID)))
				}
				must(t, k.Import(t.Context(), earlier.dir, attemptID, branchName))
			}
			now := filepath.Join(k.folder(attemptID), "web")
			must(t, k.Check(attemptID, []string{now}))
			if st, err := k.Status(t.Context(), now, "", "main"); err != nil || !slices.Equal(st.Changed, []string{"new.txt"}) {
				t.Errorf("%+v, %v", st, err)
			}
			if list := gitIn(t, repo, "worktree", "list", "--porcelain"); !strings.Contains(list, now) || strings.Contains(list, path) || strings.Contains(list, "prunable") {
				t.Errorf("git has %s", list)
			}
			if isThere(earlier.journalPath(attemptID)) || isThere(path) {
				t.Error("the old worktree or its journal is left")
			}
			if kept := remove(t, k); gitIn(t, repo, "show", kept.Ref+":new.txt") != "work" {
				t.Errorf("%+v", kept)
			}
		})
	}
}

// What a journal says is used only where the repository says the same; commands in it are not kept.
func TestImportBelievesNoJournal(t *testing.T) {
	for name, c := range map[string]struct {
		replace, with string // in the journal
		plant         func(t *testing.T, earlier *Keeper, victim string)
	}{
		"another repository":  {`"git_dir": "REPO/.git"`, `"git_dir": "VICTIM/.git"`, nil},
		"another place":       {`"path": "DIR/`, `"path": "VICTIM/`, nil},
		"a removal under way": {`"phase": "made"`, `"phase": "removing"`, nil},
		"an option as commit": {`"base": "`, `"base": "--output=VICTIM/`, nil},
		"another branch": {`"branch": "` + branchName + `",
      "base"`, `"branch": "main",
      "base"`, nil},
		"a link as the folder": {plant: func(t *testing.T, earlier *Keeper, victim string) { link(t, victim, earlier.folder(attemptID)) }},
		"a link as the journal": {plant: func(t *testing.T, earlier *Keeper, victim string) {
			must(t, os.Rename(earlier.journal, filepath.Join(victim, "j")))
			link(t, filepath.Join(victim, "j"), earlier.journal)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			repo, victim := newRepo(t), newRepo(t)
			earlier, _ := newKeeper(t)
			k, _ := newKeeper(t)
			path := create(t, earlier, repo)
			fill := strings.NewReplacer("REPO", filepath.ToSlash(repo), "VICTIM", filepath.ToSlash(victim), "DIR", filepath.ToSlash(earlier.dir))
			text := read(t, earlier.journalPath(attemptID))
			if c.plant != nil {
				c.plant(t, earlier, victim)
			} else if bad := strings.Replace(text, fill.Replace(c.replace), fill.Replace(c.with), 1); bad == text {
				t.Fatalf("%s is not in %s", fill.Replace(c.replace), text)
			} else {
				must(t, os.WriteFile(earlier.journalPath(attemptID), []byte(bad), 0o600))
			}
			if err := k.Import(t.Context(), earlier.dir, attemptID, branchName); err == nil {
				t.Error("it was taken over")
			}
			if isThere(k.journalPath(attemptID)) || isThere(k.folder(attemptID)) || c.plant == nil && !isDir(path) {
				t.Error("something was taken over or removed")
			}
			if left := gitIn(t, victim, "status", "--porcelain"); strings.Contains(left, "a.txt") {
				t.Errorf("the other repository: %s", left)
			}
		})
	}

	repo := newRepo(t)
	earlier, _ := newKeeper(t)
	k, _ := newKeeper(t)
	path := create(t, earlier, repo)
	text := read(t, earlier.journalPath(attemptID))
	must(t, os.WriteFile(earlier.journalPath(attemptID), []byte(strings.Replace(text, `"target_branch"`, `"setup": ["touch", "mark"], "copy": [".env"], "rescue_ref": "refs/heads/main", "target_branch"`, 1)), 0o600))
	elsewhere := filepath.Join(newRepo(t), ".git", "worktrees", "x")
	write(t, path, ".git", "gitdir: "+elsewhere+"\n")
	must(t, k.Import(t.Context(), earlier.dir, attemptID, branchName))
	j, err := k.load(attemptID)
	must(t, err)
	if e := j.Trees[0]; e.Setup != nil || e.Copy != nil || e.Ref != "" {
		t.Errorf("taken over: %+v", e)
	}
	if isThere(elsewhere) || !strings.Contains(read(t, k.folder(attemptID), "web", ".git"), filepath.ToSlash(repo)) {
		t.Error("the worktree's own .git was believed")
	}
}
