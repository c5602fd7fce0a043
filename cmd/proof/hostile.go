package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/trust"
	"deepwork/cmd/proof/fault"
)

// A hostile edits what a folder's author controls, while servers run: exports of sessions, other files in .deepwork,
// and the config. Nothing that it names may run or be written to, and nothing in an export may have an effect: answers
// are those of unedited sessions. It restores everything but exports a moment later.
type hostile struct {
	*simulation
	random *rand.Rand
	client *agent
	taken  int    // numbers the files in its folder
	older  []byte // an export of some session, as it was once
}

// forged is in every export that a hostile writes, and nowhere else.
const forged = "forged"

// believed is the fault of an answer that has something of an edited export.
const believed = "an edited file that was believed"

// trap is a folder outside of the project that links lead to, and mark a file in it that commands of
// the config would write.
func (s *simulation) trap() string { return filepath.Join(s.dir, "trap") }
func (s *simulation) mark() string { return filepath.Join(s.trap(), "mark") }

// layTrap creates the folders of hostiles, and grants the config as deepwork trust does, since no user's config trusts
// the project.
func (s *simulation) layTrap(ctx context.Context) error {
	s.env = append(s.env, "XDG_CONFIG_HOME="+s.dir)
	f := stateOf(s.root)
	c, faults := config.Parse(s.configFile(), []byte(s.config))
	if c == nil {
		return fmt.Errorf("the config: %v", faults)
	}

	set, err := trust.SetOf(f.Root, c)
	if err == nil {
		job := filepath.Join(s.root, ".deepwork", "jobs", "reviewed")
		err = errors.Join(os.MkdirAll(job, 0o755),
			os.WriteFile(filepath.Join(job, "job.yml"), []byte(reviewedJob), 0o644),
			os.WriteFile(filepath.Join(job, "s0.md"), []byte("Do it.\n"), 0o644), f.Make(),
			os.MkdirAll(filepath.Join(s.dir, "hostile"), 0o700), os.MkdirAll(s.trap(), 0o700),
			os.WriteFile(filepath.Join(s.trap(), "profile"), []byte("precious\n"), 0o600))
	}
	if err == nil {
		err = trust.OpenLedger(f.Grants(), f.Root).Grant(ctx, set, time.Now())
	}
	return err
}

// judgeTrap checks that nothing that a hostile named ran, or was written to.
func (s *simulation) judgeTrap() error {
	return filepath.WalkDir(s.trap(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == s.trap() {
			return err
		}

		text, err := os.ReadFile(path)
		if d.Name() != "profile" || string(text) != "precious\n" {
			s.history.fault("something outside of the project was touched", "%s: %q (%v)", path, text, err)
		}
		return nil
	})
}

func (s *simulation) configFile() string { return filepath.Join(s.root, ".deepwork", "config.yml") }

// plot makes edits, chosen at random, until ctx ends.
func (s *simulation) plot(ctx context.Context, number int, edits []func(*hostile, context.Context) error) {
	h := &hostile{
		simulation: s,
		random:     rand.New(rand.NewPCG(s.seed, 1<<32+uint64(number))),
		client:     s.agent(2*s.clients + 1 + number),
	}
	h.client.lose = 0
	for ctx.Err() == nil {
		if err := edits[h.random.IntN(len(edits))](h, ctx); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			s.history.fault("the hostile", "%v", err)
			return
		}
		s.edits.Add(1)
		h.rest(ctx, 100)
	}
}

// rest waits for up to so many milliseconds.
func (h *hostile) rest(ctx context.Context, most int) {
	_ = wait.For(ctx, time.Duration(h.random.IntN(most))*time.Millisecond)
}

// aside returns an unused path in its folder.
func (h *hostile) aside() string {
	h.taken++
	return filepath.Join(h.dir, "hostile", fmt.Sprint(h.taken))
}

// alterExport replaces, removes or edits a session's export, and leaves it so.
func (h *hostile) alterExport(ctx context.Context) error {
	ids := h.history.known()
	if len(ids) == 0 {
		return nil
	}
	id, other := ids[h.random.IntN(len(ids))], exported(h.root, ids[h.random.IntN(len(ids))])
	path := exported(h.root, id)
	h.history.with(func() { h.history.sessions[id].edited = true })
	data, err := regularFile(path)
	if err != nil {
		data = []byte("{}\n") // the file or the folder is another's
	} else if h.older == nil || h.random.IntN(4) == 0 {
		h.older = bytes.Clone(data)
	}
	if err == nil && h.random.IntN(3) == 0 {
		err = os.WriteFile(path, h.falsify(data), 0o600) // in place
	} else {
		planted := h.aside()
		if err = h.plant(planted, data, other); err == nil {
			err = os.Rename(planted, path)
		}
		if errors.Is(err, fs.ErrNotExist) { // the hostile removed it, or its folder is gone
			err = os.RemoveAll(path)
		}
	}

	h.read(ctx, id)
	return err
}

// plant creates a file to replace another, or none.
func (h *hostile) plant(path string, data []byte, other string) error {
	switch h.random.IntN(9) {
	case 0: // none
		return nil
	case 1:
		return os.Symlink(filepath.Join(h.trap(), "profile"), path)
	case 6:
		return os.Link(filepath.Join(h.trap(), "profile"), path)
	case 2:
		return os.Symlink(other, path)
	case 3:
		return fault.Pipe(path)
	case 4:
		return os.WriteFile(path, h.older, 0o600)
	case 5:
		if another, err := regularFile(other); err == nil {
			return os.WriteFile(path, another, 0o600)
		}
	}
	return os.WriteFile(path, h.falsify(data), 0o600)
}

// regularFile reads a file that has no other name.
func regularFile(path string) ([]byte, error) {
	f, fi, err := durable.OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if durable.Links(fi) != 1 {
		return nil, fs.ErrInvalid
	}
	return io.ReadAll(f)
}

// read reads a session whose export was edited, on the command line or at any server.
func (h *hostile) read(ctx context.Context, id string) {
	h.rest(ctx, 30)
	args := [][]string{{"list"}, {"show", id}, {"show", "--json", id}, nil, nil, nil}[h.random.IntN(6)]
	if args == nil {
		ctx, cancel := context.WithTimeout(ctx, time.Second) // for a server: there may be none
		defer cancel()
		h.client.perform(ctx, input{Tool: "get_step", Session: id})
		return
	}
	text, err := exec.CommandContext(ctx, h.program,
		append([]string{"sessions", "--path", h.root}, args...)...).CombinedOutput()
	if ctx.Err() == nil && (err != nil || bytes.Contains(text, []byte(forged))) {
		h.history.fault(believed, "%v: %v\n%s", args, err, text)
	}
}

// falsify returns a forged export: shorter, empty, of a later revision, or with another goal, outputs, status or step.
func (h *hostile) falsify(data []byte) []byte {
	text := strings.NewReplacer(`"goal": "`, `"goal": "`+forged+" ", `"report": "`,
		`"report": "`+forged).Replace(string(data))
	switch h.random.IntN(6) {
	case 0:
		return data[:len(data)/2]
	case 1:
		return []byte("garbage")
	case 2:
		return atRevision.ReplaceAll([]byte(text), []byte(`"revision": 999999`))
	case 3:
		return atStep.ReplaceAll([]byte(text), []byte(`"current_step_id": "s0", "current_entry_index": 0`))
	}
	return []byte(strings.NewReplacer(`"status": "active"`, `"status": "aborted"`,
		`"status": "aborted"`, `"status": "active"`, `"status": "completed"`, `"status": "active"`).Replace(text))
}

var (
	atStep     = regexp.MustCompile(`"current_step_id": "s\d",\s*"current_entry_index": \d`)
	atRevision = regexp.MustCompile(`"revision": \d+`)
)

// hideExports replaces the folder of exports by a link for a moment.
func (h *hostile) hideExports(ctx context.Context) error {
	tmp, link := stateOf(h.root).Tmp(), filepath.Join(h.root, ".deepwork", "elsewhere")
	if _, err := os.Stat(tmp); err != nil {
		return nil // no session was started yet
	}

	h.hiding.Lock()
	defer h.hiding.Unlock()
	if err := os.Symlink(h.trap(), link); err != nil {
		return err
	}

	err := fault.Exchange(link, tmp)
	if err == nil {
		h.rest(ctx, 80)
		err = fault.Exchange(link, tmp)
	}

	return errors.Join(err, os.Remove(link))
}

// litter puts links, pipes and foreign files where other files are expected, for a moment.
func (h *hostile) litter(ctx context.Context) error {
	id := fmt.Sprintf("bad0%04x", h.random.IntN(1<<16))
	name := []string{"tmp/session_" + id + ".json", "tmp/quality_review_" + id + "_s0.md", "tmp/" + id,
		"jobs/hostile/job.yml", "jobs/linked", "board.db", "worktrees"}[h.random.IntN(7)]
	path := filepath.Join(h.root, ".deepwork", filepath.FromSlash(name))
	h.hiding.Lock() // what is planted must not get into the trap
	defer h.hiding.Unlock()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = h.plant(path, []byte(`{"status": "active"}`), h.trap())
	}
	h.rest(ctx, 80)
	return errors.Join(err, os.RemoveAll(path))
}

// reviewedJob has a step with a review, which is not recorded: the model has no reviews.
const reviewedJob = `name: reviewed
version: "1.0.0"
summary: S
workflows: [{name: w, summary: W, steps: [s0]}]
steps:
  - id: s0
    name: A
    description: A
    instructions_file: s0.md
    outputs: {report: {type: file, required: true, description: R}}
    reviews: [{run_each: step, quality_criteria: {good: "Is it good?"}}]
common_job_info_provided_to_all_steps_at_runtime: I
`

// review finishes a step that has a review, while something else is in the place of the review file.
func (h *hostile) review(ctx context.Context) error {
	h.hiding.Lock() // what is planted must not get into the trap
	defer h.hiding.Unlock()
	goal, p := h.client.token("reviewed "), h.servers[h.random.IntN(len(h.servers))].current()
	if p == nil {
		return nil
	}
	h.history.ask("session", goal, &effect{job: "reviewed"})
	t := h.client.exchange(ctx, p, "start_workflow",
		map[string]any{"goal": goal, "job_name": "reviewed", "workflow_name": "w"})

	t.read(input{Tool: "start_workflow"})
	if t.code == "job_broken" {
		return errors.New(t.text)
	} else if t.kind != given {
		return nil
	}

	id := t.reply.Begin.Session
	path := filepath.Join(stateOf(h.root).Tmp(), "quality_review_"+id+"_s0.md")
	err := h.plant(path, nil, filepath.Join(h.trap(), "profile"))
	t = h.client.exchange(ctx, p, "finished_step",
		map[string]any{"session_id": id, "outputs": map[string]any{"report": outputPath(0)}})
	if t.kind == given && strings.Contains(t.text, "workflow_complete") {
		h.history.fault("a review that was left out", "session %s: %s", id, t.text)
	}
	return errors.Join(err, os.RemoveAll(path))
}

// editConfig replaces the granted config for a moment, by one that names an unapproved command or folder, or by none.
func (h *hostile) editConfig(ctx context.Context) error {
	evil := filepath.Join(h.dir, "hostile.yml")
	command := func(what string) string { return fmt.Sprintf("[sh, -c, %q]", "echo "+what+" >> "+h.mark()) }
	var err error
	switch k := h.random.IntN(10); k {
	case 0:
		err = os.Symlink(filepath.Join(h.trap(), "profile"), evil)
	case 1:
		err = fault.Pipe(evil)
	case 2:
		err = os.WriteFile(evil, []byte("quality_gate: ["), 0o644)
	default:
		text := "# The granted config is not a prefix of this one, as half of a save would be.\n" + h.config
		if k < 5 {
			text += fmt.Sprintf("    - {name: hostile, command: %s}\n", command("source"))
		}
		if k == 4 || k == 5 {
			text = strings.Replace(text, "SIM: {", "HOSTILE: {command: "+command("another agent")+"}\n  SIM: {", 1)
		}
		if k == 6 || k == 7 {
			text = strings.Replace(text, "command: [sh", "command: "+command("agent")+", resume: [sh", 1)
		}
		if k == 7 || k == 8 {
			text = strings.Replace(text, "attempts: {",
				"attempts: {setup: "+command("setup")+", worktrees: "+h.trap()+", ", 1)
		}
		if k != 4 && k != 6 {
			text += "quality_gate: {agent_review_command: " + command("reviewer") + "}\n"
		}
		err = os.WriteFile(evil, []byte(text), 0o644)
	}

	h.history.with(func() { h.history.edited = never })
	if err == nil {
		err = os.Rename(evil, h.configFile())
	}
	h.rest(ctx, 200)
	err = errors.Join(err, h.review(ctx))
	err = errors.Join(err, os.WriteFile(evil, []byte(h.config), 0o644), os.Rename(evil, h.configFile()))
	h.history.with(func() { h.history.edited = h.history.now() })
	h.rest(ctx, 500) // most of the time servers work
	return err
}
