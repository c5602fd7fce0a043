//go:build unix

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/trust"
	"deepwork/session/attempt/worktree"
	"deepwork/session/state"
)

// attacked is the command that the attacks are tried on.
const attacked = "deepwork"

// An attack is a repository that somebody prepared. MARK, URL, OUTSIDE, HOME and ROOT in
// its texts are replaced by the canaries and the project.
type attack struct {
	files   map[string]string // .deepwork/config.yml and others
	prepare func(v *victim)   // does what files cannot
	edit    string            // the config that replaces the first while the server runs
	refused []string          // calls that are refused without approval, but the start of agents
	notice  string            // what get_workflows says is not approved
	started string            // what start_workflow says
	user    string            // the user's own config
	name    string            // of the project's folder
	broken  bool              // so that starting an agent fails before it is a matter of approval
	during  func(v *victim)   // happens while the server runs, and before its calls
	again   bool              // whether commands that read are tried after the server, too
	// control does what the attack hopes for, so that the canaries are known to notice it.
	control func(v *victim)
}

const (
	evilSource   = "workflow_tools: {sources: [{name: s, command: [MARK, source], env: {A: b}}]}\n"
	evilExecutor = "executors: {EVIL: {command: [MARK, agent]}}\n"
	trusted      = "trusted_folders: [ROOT]\nexecutors: {EVIL: {command: [\"true\"]}}\n"
)

func onlyConfig(text string) map[string]string {
	return map[string]string{".deepwork/config.yml": text}
}

// attacks is a function, since this binary is also the program, which starts thousands of times and needs no attack.
func attacks() map[string]attack {
	return map[string]attack{
		"no config": {},
		"source":    {files: onlyConfig(evilSource), notice: "workflow_tools.sources.s", control: approve},
		"source edited": {
			files:   onlyConfig("version: \"1.0\"\n"),
			edit:    evilSource,
			notice:  "workflow_tools.sources.s",
			control: approve,
		},
		"source with a secret": {notice: "workflow_tools.sources.s", control: approve,
			files: onlyConfig("workflow_tools: {sources: [{name: s, url: \"URL\", headers: {Authorization: \"Bearer " +
				"${SECRET_TOKEN}\"}}]}\n")},
		"reviewer": {
			files:   onlyConfig("quality_gate: {agent_review_command: [MARK, review]}\n"),
			notice:  "quality_gate.agent_review_command",
			refused: []string{"finished_step"},
			control: approve,
		},
		"executor": {files: onlyConfig(evilExecutor), notice: "executors.EVIL", control: approve},
		"settings of every kind": {notice: "executors.EVIL, executors.CLAUDE_CODE, attempts.setup, attempts.push_to, " +
			"projects.theirs, attempts.worktrees",
			prepare: func(v *victim) { v.write("x", "") },
			files: onlyConfig(`executors: {EVIL: {command: [MARK], variants: {V: {command: [MARK, variant], env: ` +
				`{HOME: ROOT}}}}, CLAUDE_CODE: {command: [MARK]}}
attempts: {setup: [MARK, setup], copy: [.env], push_to: theirs, worktrees: OUTSIDE}
projects: [{name: theirs, repos: [{path: OUTSIDE, setup: [MARK], copy: [work.txt]}]}]
`)},
		"checkout": {
			files:   onlyConfig("git: {branch: checkout}\n"),
			notice:  "git.branch",
			started: "The user has not approved git.branch: checkout",
		},
		"denied": {
			user: "trusted_folders: [ROOT]\nquality_gate: {agent_review_command: [MARK, mine]}\ngit: {branch: " +
				"create}\nexecutors: {EVIL: {command: [MARK, mine]}}\nworkflow_tools: {sources: [{name: mine, " +
				"command: [MARK, mine]}]}\n",
			files:   onlyConfig(evilSource),
			notice:  "The user denied everything that would run",
			started: "git.branch: create",
			refused: []string{"finished_step", "start_task_attempt", "refresh_workflow_tools"},
			prepare: func(v *victim) { must(v.t, v.command(v.t.Context(), "trust", "--deny").Run()) },
			control: approveAfterDenial,
		},
		"branch whose log is the shell's": {
			files:  onlyConfig("git: {branch: create}\n"),
			notice: "git.branch",
			prepare: func(v *victim) {
				v.link(filepath.Join(v.home, ".profile"),
					".git/logs/refs/heads/deepwork/j-w-"+time.Now().UTC().Format(time.DateOnly))
			},
		},
		"settings that belong to the user": {broken: true,
			files: onlyConfig("trusted_folders: [ROOT]\nhttp: {tokens: [abc], allowed_hosts: [evil.example]}\nstore: " +
				"\"postgres://127.0.0.1/\"\n" + evilSource)},

		// State that somebody else has made.
		"board": {
			files:   onlyConfig(evilExecutor),
			notice:  "executors.EVIL",
			prepare: func(v *victim) { v.prepareState(evilExecutor) },
		},
		"board of a trusted project": {user: trusted, prepare: func(v *victim) {
			v.prepareState("executors: {EVIL: {command: [MARK]}}\n")
			must(v.t, os.Remove(filepath.Join(v.root, ".deepwork", "config.yml")))
		}},
		"tmp linked":      {broken: true, prepare: func(v *victim) { v.link(v.home, ".deepwork/tmp") }},
		"deepwork linked": {broken: true, prepare: func(v *victim) { v.link(v.home, ".deepwork") }},
		"ignore file linked": {prepare: func(v *victim) {
			v.link(filepath.Join(v.home, ".profile"), ".deepwork/.gitignore")
		}},
		"instructions linked": {
			broken:  true,
			prepare: func(v *victim) { v.link(filepath.Join(v.home, ".ssh", "id"), ".deepwork/jobs/j/a.md") },
		},

		// Programs that git would run.
		"programs of git": {
			user:  trusted,
			files: map[string]string{"settings": "[core]\n\tfsmonitor = MARK\n"},
			prepare: func(v *victim) {
				v.gitRuns("core.hooksPath", "ROOT/hooks", "core.fsmonitor", "MARK", "filter.evil.clean", "MARK",
					"filter.evil.smudge", "MARK", "filter.evil.process", "MARK",
					"diff.external", "MARK", "diff.evil.textconv", "MARK", "diff.evil.command", "MARK",
					"merge.evil.driver", "MARK", "include.path", "ROOT/settings",
					"gpg.program", "MARK", "commit.gpgSign", "true", "core.pager", "MARK", "core.editor", "MARK",
					"credential.helper", "MARK", "core.askPass", "MARK", "core.alternateRefsCommand", "MARK")
			},
			control: func(v *victim) {
				v.shell("git status; git diff; git add .; git -c user.name=a -c user.email=a commit -qm a")
			},
		},
		"variables of git": {user: trusted, prepare: func(v *victim) {
			v.extra = []string{"GIT_DIR=OUTSIDE/.git", "GIT_WORK_TREE=OUTSIDE", "GIT_COMMON_DIR=OUTSIDE/.git",
				"GIT_INDEX_FILE=OUTSIDE/.git/index", "GIT_OBJECT_DIRECTORY=OUTSIDE/.git/objects",
				"GIT_EXTERNAL_DIFF=MARK", "GIT_CONFIG_PARAMETERS='core.fsmonitor=MARK'", "GIT_EDITOR=MARK"}
		}, control: func(v *victim) { v.shell("git status") }},
		"agent that plants a " +
			"repository": {user: agentThat(
			`mkdir sub; cd sub; git init -q .; echo x > x; git add x; git -c user.name=a -c user.email=a commit ` +
				`-qm a; cd ..; git add sub; echo '* filter=evil' > sub/.gitattributes; git -C sub config ` +
				`filter.evil.clean MARK; touch -d 2001-01-01 sub/x; echo y > sub/x`),
			control: func(v *victim) { v.shell("cd " + v.worktree() + "; git status") }},
		"agent that leads git elsewhere": {user: agentThat(
			`git init -q evil; git -C evil config core.fsmonitor MARK; echo "gitdir: $PWD/evil/.git" > .git`),
			control: func(v *victim) { v.shell("cd " + v.worktree() + "; git status") }},
		"agent that adds settings of the " +
			"worktree": {user: agentThat(
			`git config extensions.worktreeConfig true; git config --worktree core.fsmonitor MARK; git config ` +
				`--worktree filter.evil.clean MARK; echo '* filter=evil' > .gitattributes`),
			control: func(v *victim) { v.shell("cd " + v.worktree() + "; git status; git add .") }},
		"git folder linked": {user: trusted, broken: true, prepare: func(v *victim) {
			must(v.t, os.RemoveAll(filepath.Join(v.root, ".git")))
			v.link(filepath.Join(v.outside, ".git"), ".git")
		}},
		"git's settings are a pipe": {user: trusted, broken: true, prepare: func(v *victim) { v.pipe(".git/config") }},
		"bare repository":           {broken: true, prepare: makeBare},

		// Programs found in the project.
		"path in the project": {
			files: map[string]string{
				"bin/git":  "#!/bin/sh\nexec MARK git\n",
				"git":      "#!/bin/sh\nexec MARK git\n",
				"bin/evil": "#!/bin/sh\nexec MARK evil\n",
			},
			user: "trusted_folders: [ROOT]\nquality_gate: {agent_review_command: [evil]}\nexecutors: {EVIL: " +
				"{command: [evil]}}\nworkflow_tools: {sources: [{name: s, command: [evil]}]}\n",
			prepare: func(v *victim) { v.extra = []string{"PATH=ROOT/bin:bin:.:" + os.Getenv("PATH")} },
			control: func(v *victim) { v.shell("PATH=$PWD/bin:$PATH; evil") },
		},

		// What is not a file, or too much.
		"job linked": {broken: true, prepare: func(v *victim) {
			testkit.Write(v.t, filepath.Join(v.home, "settings"), secret+": "+secret+"\nname: "+secret+"\n")
			v.link("../../../../home/settings", ".deepwork/jobs/k/job.yml")
		}},
		"output is a pipe": {during: func(v *victim) { v.pipe("README") }},
		"output in a folder linked": {user: "quality_gate: {agent_review_command: [cat]}\n", broken: true, again: true,
			during: func(v *victim) {
				v.link(filepath.Join(v.home, ".ssh"), "keys")
				v.link("keys/id", "README")
			}},
		"tmp replaced after a session began": {
			broken:  true,
			prepare: beginAndClose,
			during:  func(v *victim) { v.link(v.outside, ".deepwork/tmp") },
		},
		"source with variables that load": {files: map[string]string{"bin/ls": "#!/bin/sh\nexec MARK ls\n",
			".deepwork/config.yml": "workflow_tools: {sources: [{name: s, command: [ls], env: {PATH: \"ROOT/bin\", " +
				"LD_PRELOAD: MARK, GIT_EXTERNAL_DIFF: MARK}, pass_env: [\"*\"]}]}\n"},
			notice: "workflow_tools.sources.s", control: func(v *victim) { v.shell("bin/ls") }},
		"names": {name: "pro\x1b[31mject", files: map[string]string{
			".deepwork/jobs/evil\x1b[2J/job.yml": strings.Replace(attackedJob, "A job", `"\e]0;title\a\u202e"`, 1),
			".deepwork/jobs/named/job.yml":       strings.Replace(attackedJob, "name: j", `name: "n\e[2J"`, 1),
			".deepwork/jobs/told/job.yml": strings.NewReplacer("name: j", "name: told", "summary: W",
				`summary: "\e[2J\u009b"`, "one", `"o\e[2J"`).Replace(attackedJob),
			".deepwork/jobs/broken/job.yml":       "name: \"\\e[2J\"\nsteps: \"\\e[31m\"\n\"\\e[1m\": 1\n",
			".deepwork/tmp/session_\x1b[2J.json":  "{}",
			".deepwork/tmp/session_0a0b0c0d.json": "{\"goal\": \"\x1b[2J\"}",
			".deepwork/config.yml": "executors: {\"E\\e[2J\": {command: [\"\\e[2J\"]}}\nprojects: [{name: " +
				"\"p\\e[2J\", repos: [{path: \"/\\e[2J\"}]}]\n\"\\e[3m\": 1\n",
		}, broken: true},
		"names of the user's agent": {user: trusted, again: true, prepare: commitForgedNames},
		"script of another user": {
			files: map[string]string{
				".deepwork/config.yml": "quality_gate: {agent_review_command: [./review.sh]}\n",
				"review.sh":            "#!/bin/sh\nexec MARK review\n",
			},
			notice:  "quality_gate.agent_review_command",
			refused: []string{"finished_step"},
			prepare: giveReviewAway,
			control: takeReviewBack,
		},
		"script edited while the server runs": {
			broken: true,
			files: map[string]string{
				".deepwork/config.yml": "quality_gate: {agent_review_command: [./review.sh]}\n",
				"review.sh":            "#!/bin/sh\nexit 1\n",
			},
			refused: []string{"finished_step"},
			prepare: func(v *victim) { v.grant(0o644) },
			during:  func(v *victim) { v.write("review.sh", "#!/bin/sh\nexec MARK review\n") },
			control: approve,
		},
		"script that the user's own config names": {
			files: map[string]string{
				"review.sh":            "exec MARK review\n",
				".deepwork/config.yml": "version: \"1.0\"\n",
			},
			user:    "quality_gate: {agent_review_command: [sh, review.sh]}\n",
			broken:  true,
			refused: []string{"finished_step", "start_task_attempt"},
			control: func(v *victim) {
				v.as("own", "trusted_folders: [ROOT]\nquality_gate: {agent_review_command: [sh, review.sh]}\n")
				approve(v)
			},
		},
		"agent of a branch": {
			broken:  true,
			files:   onlyConfig("executors: {EVIL: {command: [sh, run.sh]}}\n"),
			prepare: commitEvilAgent,
			control: approveEvilAgent,
		},
		"git file of a trusted project": {
			files:  onlyConfig(evilSource),
			user:   "trusted_folders: [OUTSIDE]\n",
			notice: "workflow_tools.sources.s",
			prepare: func(v *victim) {
				must(v.t, os.RemoveAll(filepath.Join(v.root, ".git")))
				v.write(".git", "gitdir: OUTSIDE/.git\n")
			},
			broken: true,
		},
	}
}

func approveAfterDenial(v *victim) {
	must(v.t, os.RemoveAll(filepath.Join(v.stateDir(), "trust")))
	approve(v)
}

// makeBare makes the project a bare repository, which git finds there.
func makeBare(v *victim) {
	must(v.t, os.RemoveAll(filepath.Join(v.root, "hooks")))
	for _, part := range glob(v.root, ".git", "*") {
		must(v.t, os.Rename(part, filepath.Join(v.root, filepath.Base(part))))
	}
	must(v.t, os.RemoveAll(filepath.Join(v.root, ".git")))
	testkit.Git(v.t, v.root, "config", "-f", "config", "core.bare", "true")
	testkit.Git(v.t, v.root, "config", "-f", "config", "core.fsmonitor", v.program)
}

func beginAndClose(v *victim) {
	s := v.serve()
	s.call("start_workflow", map[string]any{"job_name": "j", "workflow_name": "w", "goal": "G"})
	s.call("list_projects", nil) // which enters the project into the board
	must(v.t, s.client.Close())
}

func commitForgedNames(v *victim) {
	v.text = "T\x1b[2J\u202e\n" + forged + "\r\u009b2J\n" + forged
	testkit.Git(v.t, v.root, "checkout", "-q", "-b", "evil\u202e\u009b")
	v.write("a\x1b[2J\n"+forged, "x")
	testkit.Git(v.t, v.root, "add", ".")
	testkit.Git(v.t, v.root, "commit", "-q", "-m", "a")
}

func giveReviewAway(v *victim) {
	if os.Getuid() != 0 {
		v.t.Skip("only root can give files away")
	}
	v.grant(0o644)
	must(v.t, os.Chown(filepath.Join(v.root, "review.sh"), 12345, 0))
}

func takeReviewBack(v *victim) {
	must(v.t, os.Chown(filepath.Join(v.root, "review.sh"), 0, 0))
	approve(v)
}

const evilAgent = "exec MARK of the branch\n"

// commitEvilAgent commits an agent that is another one than in the checkout, which the user approves.
func commitEvilAgent(v *victim) {
	v.write("run.sh", evilAgent)
	testkit.Git(v.t, v.root, "add", "run.sh")
	testkit.Git(v.t, v.root, "commit", "-q", "-m", "evil")
	v.write("run.sh", "exit 0\n")
	v.grant(0o644)
}

func approveEvilAgent(v *victim) {
	v.write("run.sh", evilAgent)
	approve(v)
}

// Nothing that a prepared repository holds is run, sent or touched before the user has
// approved it; what only reads leaves nothing behind, and what is refused says what to do.
func TestAttacks(t *testing.T) {
	t.Parallel()
	for name, a := range attacks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVictim(t, cmp.Or(a.name, "project"))
			v.write("README", "hello\n")
			inGit(t, v.root)
			v.write(".deepwork/jobs/j/job.yml", attackedJob)
			v.write(".deepwork/jobs/j/a.md", "Do it.")
			for file, text := range a.files {
				v.write(file, text)
			}
			v.as("own", a.user)
			if a.prepare != nil {
				a.prepare(v)
			}
			v.as("own", a.user)
			v.guarded = v.canaries() // with what was prepared
			head := readAll(v.root, ".git", "HEAD")
			v.reads(a.again || a.name != "" || name == "no config")
			s := v.serve()
			if s == nil {
				v.intact("a server that did not start")
				return
			}

			if a.edit != "" {
				v.write(".deepwork/config.yml", a.edit)
				testkit.Until(t, "noticed", func() bool {
					text, _ := s.call("get_workflows", nil)
					return strings.Contains(text, a.notice)
				})
				time.Sleep(300 * time.Millisecond) // for what would be started by an edit
			}
			if a.during != nil {
				a.during(v)
			}
			text, _ := s.call("get_workflows", nil)
			for notice := range strings.SplitSeq(a.notice, ", ") {
				testkit.Contains(t, text, notice, "get_workflows")
			}

			codes := s.calls()
			want := slices.Clone(a.refused)
			if a.user == "" && !a.broken {
				want = append(want, "start_task_attempt")
			}
			for _, tool := range want {
				testkit.Equal(t, codes[tool], "untrusted", "%s was not refused without approval, but", tool)
			}
			testkit.Contains(t, s.started, a.started, "start_workflow")

			_ = s.client.Close()
			v.harmless("the server's log", s.log.String())
			v.intact("the server")
			testkit.Equal(t, readAll(v.root, ".git", "HEAD"), head, "HEAD")

			if a.again {
				v.reads(true)
			}
			if a.control != nil {
				a.control(v)
				v.mustNotice()
			}
		})
	}
}

// approve has the user approve the config, and a server do what that says.
func approve(v *victim) {
	v.grant(0o644)
	s := v.serve()
	s.calls()
	v.mustNotice()
	must(v.t, s.client.Close())
}

func (v *victim) shell(script string) {
	cmd := exec.Command("sh", "-c", v.filled(script))
	cmd.Env, cmd.Dir = v.env, v.root
	out, err := cmd.CombinedOutput()
	v.t.Logf("%v: %s", err, out)
}

// worktree is that of the attempt that calls started.
func (v *victim) worktree() string {
	all := glob(v.stateDir(), "projects", "*", "worktrees", "[a-z0-9]*", "*")
	all = slices.DeleteFunc(all, func(path string) bool {
		around := filepath.Dir(path)
		return worktree.Owner(filepath.Dir(around), filepath.Base(around)) != v.attempt
	})
	testkit.Need(v.t, len(all) == 1, "the worktrees are %q", all)
	return all[0]
}

// agentThat is the user's config with an agent who is not trusted as far, and does this once.
func agentThat(script string) string {
	return fmt.Sprintf("trusted_folders: [ROOT]\nexecutors: {EVIL: {command: [sh, -c, %q]}}\n",
		"test ! -e done || exit 0; touch done; "+script)
}

// prepareState has a server that its user trusts make a session, an attempt that runs and one that waits, in
// the project, and puts all that state into the project's .deepwork. The project has this config then.
func (v *victim) prepareState(after string) {
	t := v.t
	gate := filepath.Join(v.top, "gate")
	v.as("attacker", "trusted_folders: [ROOT]\n")
	v.write(".deepwork/config.yml",
		"attempts: {max_concurrent: 1}\nexecutors: {EVIL: {command: [sh, -c, \"while [ ! -e "+gate+
			" ]; do sleep 0.05; done\"]}}\n")
	s := v.serve()
	call := func(tool string, args map[string]any) string { return string(callTool(t, s.client, tool, args)) }
	v.session = found(call("start_workflow", map[string]any{"job_name": "j", "workflow_name": "w", "goal": smuggled}),
		"session_id")
	project := found(call("list_projects", map[string]any{}), "project_id")
	repo := found(call("list_repos", map[string]any{"project_id": project}), "repo_id")
	v.task = found(call("create_task",
		map[string]any{"project_id": project, "title": smuggled, "description": "D\x1b[2J"}), "task_id")
	for _, state := range []string{"running", "queued"} {
		v.attempt = found(call("start_task_attempt", map[string]any{
			"task_id":  v.task,
			"executor": "EVIL",
			"repos":    []map[string]any{{"repo_id": repo, "target_branch": "main"}},
		}), "attempt_id")
		testkit.Until(t, "the attempt is "+state, func() bool {
			return found(call("get_attempt", map[string]any{"attempt_id": v.attempt}), "state") == state
		})
	}

	must(t, s.client.Close())
	testkit.Write(t, gate, "")
	v.quiet()
	for _, dir := range glob(v.stateDir(), "projects", "*", "*") {
		to := filepath.Join(v.root, ".deepwork", filepath.Base(dir))
		if _, err := os.Lstat(to); err != nil {
			must(t, exec.Command("cp", "-R", dir, to).Run())
		}
	}
	must(t, os.RemoveAll(v.stateDir()))
	v.as("own", "")
	v.write(".deepwork/config.yml", after)
}

// gitRuns gives the repository settings of its own, names and values in turn, and what
// they are about: attributes of all files, and all hooks.
func (v *victim) gitRuns(settings ...string) {
	for _, hook := range []string{"post-checkout", "reference-transaction", "post-index-change", "pre-commit",
		"post-commit", "fsmonitor-watchman", "pre-auto-gc"} {
		for _, dir := range []string{".git/hooks/", "hooks/"} {
			v.write(dir+hook, "#!/bin/sh\nexec MARK "+hook+"\n")
		}
	}
	v.write(".gitattributes", "* filter=evil diff=evil merge=evil\n")
	testkit.Git(v.t, v.root, "-c", "core.hooksPath=/dev/null", "add", ".gitattributes")
	testkit.Git(v.t, v.root, "-c", "core.hooksPath=/dev/null", "commit", "-q", "-m", "attributes")
	for pair := range slices.Chunk(settings, 2) {
		testkit.Git(v.t, v.root, "config", "--add", pair[0], v.filled(pair[1]))
	}
	v.write("README", "changed\n")
}

// grant approves the config as deepwork trust does, and then gives its file this mode.
func (v *victim) grant(mode os.FileMode) {
	t := v.t
	file := filepath.Join(v.root, ".deepwork", "config.yml")
	c, faults := config.Parse(file, []byte(readAll(file)))
	testkit.Need(t, c != nil, "%v", faults)

	set := testkit.Get(trust.SetOf(v.root, c)).Must(t)
	grants := filepath.Join(v.stateDir(), "trust", state.Name(v.root)+".json")
	must(t, os.MkdirAll(v.stateDir(), 0o700))
	must(t, trust.OpenLedger(grants, v.root).Grant(context.Background(), set, time.Now()))
	must(t, os.Chmod(file, mode))
}

// In a project that the user has approved, a branch with another config changes nothing in a server that runs, and a
// new server uses nothing of it; going back needs no approval.
func TestAttackByABranch(t *testing.T) {
	t.Parallel()
	v := newVictim(t, "project")
	v.write(".deepwork/jobs/j/job.yml", attackedJob)
	v.write(".deepwork/jobs/j/a.md", "Do it.")
	v.write("README", "hello\n")
	v.write(".deepwork/config.yml", "quality_gate: {agent_review_command: [./review.sh]}\n")
	v.write("review.sh", "#!/bin/sh\nexit 1\n")
	inGit(t, v.root)
	testkit.Git(t, v.root, "checkout", "-q", "-b", "evil")
	v.write(".deepwork/config.yml", "quality_gate: {agent_review_command: [MARK, review]}\n")
	v.write("review.sh", "#!/bin/sh\nexec MARK review\n")
	testkit.Git(t, v.root, "commit", "-qam", "evil")
	testkit.Git(t, v.root, "checkout", "-q", "main")
	v.grant(0o644)
	for _, steps := range [][]string{{"main", "", "evil", "what was approved before stays in force", "main", ""},
		{"evil", "it is not in force", "main", ""}} {
		testkit.Git(t, v.root, "checkout", "-q", steps[0])
		s := v.serve()
		for step := range slices.Chunk(steps, 2) {
			testkit.Git(t, v.root, "checkout", "-q", step[0])
			testkit.Until(t, "get_workflows says "+step[1], func() bool {
				text, _ := s.call("get_workflows", nil)
				return strings.Contains(text, "agent_review_command") == (step[1] != "") &&
					strings.Contains(text, step[1])
			})

			code := s.calls()["finished_step"]
			testkit.Equal(t, code == "untrusted", step[1] != "", "on %s, finished_step has the code %q", step[0], code)
			v.intact("the branch " + step[0])
		}

		must(t, s.client.Close())
	}
	testkit.Git(t, v.root, "checkout", "-q", "evil")
	approve(v)
}
