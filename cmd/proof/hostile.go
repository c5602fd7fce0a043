package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
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

// A hostile is a process that edits what the author of a folder controls, while servers run: session
// files, other files in .deepwork, and the config. Each edit is undone a moment later. Nothing that
// it names may run or be written to, and what it puts back works as before.
//
// It never puts back an older version of a session than the last one that a server wrote: that has a
// valid seal.
type hostile struct {
	*simulation
	random *rand.Rand
	client *agent
	taken  int // numbers the files in its folder
}

// forged is in every record that a hostile alters, and in no other.
const forged = "forged"

// trap is a folder outside of the project that links lead to, and mark a file in it that commands of
// the config would write.
func (s *simulation) trap() string { return filepath.Join(s.dir, "trap") }
func (s *simulation) mark() string { return filepath.Join(s.trap(), "mark") }

// layTrap creates the folders of hostiles, and grants the config as deepwork trust does: no user's
// config trusts the project.
func (s *simulation) layTrap(ctx context.Context) error {
	s.env = []string{"XDG_CONFIG_HOME=" + s.dir}
	f := stateOf(s.root)
	c, faults := config.Parse(s.configFile(), []byte(s.config))
	if c == nil {
		return fmt.Errorf("the config: %v", faults)
	}
	set, err := trust.SetOf(f.Root, c)
	if err == nil {
		job := filepath.Join(s.root, ".deepwork", "jobs", "reviewed")
		err = errors.Join(os.MkdirAll(job, 0o755), os.WriteFile(filepath.Join(job, "job.yml"), []byte(reviewedJob), 0o644),
			os.WriteFile(filepath.Join(job, "s0.md"), []byte("Do it.\n"), 0o644), f.Make(), os.MkdirAll(filepath.Join(s.dir, "hostile"), 0o700), os.MkdirAll(s.trap(), 0o700),
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
	h := &hostile{simulation: s, random: rand.New(rand.NewPCG(s.seed, 1<<32+uint64(number))), client: s.agent(2*s.clients + 1 + number)}
	h.client.lose, h.client.inside = 0, true
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

// alterSession has another file, or none, in the place of a session's for a moment. What a server
// writes there meanwhile stays.
func (h *hostile) alterSession(ctx context.Context) error {
	h.calls.RLock() // the power is not cut meanwhile
	defer h.calls.RUnlock()
	ids := h.history.known(false)
	if len(ids) == 0 {
		return nil
	}
	id := ids[h.random.IntN(len(ids))]
	path, own, planted, taken := sessionFile(h.root, id), h.aside(), h.aside(), h.aside()
	defer func() { h.history.alter(id, h.history.now()) }()
	h.history.alter(id, never)
	if h.random.IntN(4) == 0 {
		return errors.Join(h.alterInPlace(ctx, path, own), h.image.Sync(stateOf(h.root).Tmp()))
	}
	if err := os.Rename(path, own); err != nil {
		return err
	}
	data, err := os.ReadFile(own)
	if err == nil {
		err = h.plant(planted, filepath.Base(path), data, sessionFile(h.root, ids[h.random.IntN(len(ids))]))
	}
	link := func(from string) error { // a server's own file is the newer one
		if err := os.Link(from, path); !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	err = errors.Join(err, link(planted))
	h.read(ctx, id)
	if rerr := os.Rename(path, taken); rerr == nil {
		now, nerr := os.Lstat(taken)
		if was, err := os.Lstat(planted); err != nil || !os.SameFile(was, now) {
			own = taken
		}
		err = errors.Join(err, nerr)
	} else if !errors.Is(rerr, fs.ErrNotExist) { // else it was set aside, or there was none
		err = errors.Join(err, rerr)
	}
	return errors.Join(err, link(own), h.image.Sync(stateOf(h.root).Tmp()))
}

// plant creates a file in the place of a session's, or none.
func (h *hostile) plant(path, name string, data []byte, other string) error {
	switch h.random.IntN(8) {
	case 0: // none
		return nil
	case 1:
		return os.Symlink(filepath.Join(h.trap(), "profile"), path)
	case 2:
		return os.Symlink(other, path)
	case 3:
		return fault.Pipe(path)
	case 4: // sealed, for another project
		data = h.falsify(data)
		at := bytes.LastIndex(data, []byte(",\n  \"checksum\""))
		body := append(bytes.Clone(data[:max(at, 0)]), "\n}"...)
		elsewhere := filepath.Join(h.dir, "elsewhere")
		err := os.MkdirAll(elsewhere, 0o700)
		if sealed, _, serr := durable.Seal(name, body, stateOf(elsewhere)); serr == nil {
			data = sealed
		}
		return errors.Join(err, os.WriteFile(path, data, 0o600))
	case 5:
		if another, err := os.ReadFile(other); err == nil && !strings.HasSuffix(other, name) {
			return os.WriteFile(path, another, 0o600)
		}
	}
	return os.WriteFile(path, h.falsify(data), 0o600)
}

// read reads a session whose file is altered, on the command line or at any server, which often does
// not have it in memory. The model knows the session as it was.
func (h *hostile) read(ctx context.Context, id string) {
	h.rest(ctx, 30)
	args := [][]string{{"list"}, {"show", id}, {"show", "--json", id}, nil, nil, nil}[h.random.IntN(6)]
	if args == nil {
		ctx, cancel := context.WithTimeout(ctx, time.Second) // for a server: there may be none
		defer cancel()
		h.client.home = h.servers[h.random.IntN(len(h.servers))]
		h.client.perform(ctx, input{Tool: "get_step", Session: id})
		return
	}
	args = append([]string{"sessions", "--path", h.root}, args...)
	// It fails if it was asked for this session alone.
	if text, _ := exec.CommandContext(ctx, h.program, args...).CombinedOutput(); bytes.Contains(text, []byte(forged)) {
		h.history.fault("an altered file that was believed", "%v:\n%s", args, text)
	}
}

// falsify returns a record that nobody wrote: shorter, no record, or with another goal, other
// outputs, and another status or step.
func (h *hostile) falsify(data []byte) []byte {
	text := strings.NewReplacer(`"goal": "`, `"goal": "`+forged+" ", `"report": "`, `"report": "`+forged).Replace(string(data))
	switch h.random.IntN(6) {
	case 0:
		return data[:len(data)/2]
	case 1:
		return []byte("garbage")
	case 2, 3:
		return atStep.ReplaceAll([]byte(text), []byte(`"current_step_id": "s0", "current_entry_index": 0`))
	}
	return []byte(strings.NewReplacer(`"status": "active"`, `"status": "aborted"`,
		`"status": "aborted"`, `"status": "active"`, `"status": "completed"`, `"status": "active"`).Replace(text))
}

var atStep = regexp.MustCompile(`"current_step_id": "s\d",\s*"current_entry_index": \d`)

// alterInPlace changes the content of a session's file for a moment; own is another name of it.
func (h *hostile) alterInPlace(ctx context.Context, path, own string) error {
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.Link(path, own)
	}
	if err != nil {
		return err
	}
	before, err := os.ReadFile(own)
	if err != nil || !bytes.Equal(before, data) {
		return err // a server has written meanwhile
	}
	err = os.WriteFile(own, h.falsify(data), 0o600)
	h.read(ctx, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "session_"), ".json"))
	err = errors.Join(err, os.WriteFile(own, data, 0o600))
	if lerr := os.Link(own, path); !errors.Is(lerr, fs.ErrExist) { // it was set aside
		err = errors.Join(err, lerr)
	}
	return err
}

// hideSessions has a link in the place of the folder of sessions for a moment.
func (h *hostile) hideSessions(ctx context.Context) error {
	h.calls.RLock()
	defer h.calls.RUnlock()
	tmp, link := stateOf(h.root).Tmp(), filepath.Join(h.root, ".deepwork", "elsewhere")
	if _, err := os.Stat(tmp); err != nil {
		return nil // no session was started yet
	}
	h.hiding.Lock()
	defer h.hiding.Unlock()
	defer func() { h.history.alter("", h.history.now()) }()
	h.history.alter("", never)
	if err := os.Symlink(h.trap(), link); err != nil {
		return err
	}
	err := fault.Exchange(link, tmp)
	if err == nil {
		h.rest(ctx, 80)
		err = fault.Exchange(link, tmp)
	}
	return errors.Join(err, os.Remove(link), h.image.Sync(tmp))
}

// litterID begins the ids of sessions that never were.
const litterID = "bad0"

// litter has links and pipes where other files are expected for a moment, and files of others.
func (h *hostile) litter(ctx context.Context) error {
	h.calls.RLock()
	defer h.calls.RUnlock()
	sum := sha256.Sum256([]byte(fmt.Sprint(h.random.Uint64())))
	digits := litterID + hex.EncodeToString(sum[2:])
	name := []string{"tmp/session_" + digits[:8] + ".json", "tmp/definition_" + digits + ".json", "tmp/quality_review_" + digits[:8] + "_s0.md",
		"tmp/damaged_session_" + digits[:8] + "_.json", "jobs/hostile/job.yml", "jobs/linked", "board.db", "worktrees", "tmp/" + digits}[h.random.IntN(9)]
	path := filepath.Join(h.root, ".deepwork", filepath.FromSlash(name))
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = h.plant(path, filepath.Base(path), []byte(`{"status": "active"}`), h.trap())
	}
	h.rest(ctx, 80)
	// Without the sync, the power may fail and bring it back.
	return errors.Join(err, os.RemoveAll(path), h.image.Sync(stateOf(h.root).Tmp()))
}

// reviewedJob has a step with a review, which nobody tracks: the model has no reviews.
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

// review finishes a step that has a review, with something in the place of the review file.
func (h *hostile) review(ctx context.Context) error {
	h.calls.RLock()
	defer h.calls.RUnlock()
	h.hiding.Lock() // what is planted must not get into the trap
	defer h.hiding.Unlock()
	goal, p := h.client.token("reviewed "), h.servers[h.random.IntN(len(h.servers))].current()
	if p == nil {
		return nil
	}
	h.history.ask("session", goal, &effect{job: "reviewed"})
	t := h.client.exchange(ctx, p, "start_workflow", map[string]any{"goal": goal, "job_name": "reviewed", "workflow_name": "w"})
	if t.read(input{Tool: "start_workflow"}); t.code == "job_broken" {
		return errors.New(t.text)
	} else if t.kind != given {
		return nil
	}
	id := t.reply.Begin.Session
	path := filepath.Join(stateOf(h.root).Tmp(), "quality_review_"+id+"_s0.md")
	err := h.plant(path, filepath.Base(path), nil, filepath.Join(h.trap(), "profile"))
	t = h.client.exchange(ctx, p, "finished_step", map[string]any{"session_id": id, "outputs": map[string]any{"report": outputPath(0)}})
	if t.kind == given && strings.Contains(t.text, "workflow_complete") {
		h.history.fault("a review that was left out", "session %s: %s", id, t.text)
	}
	return errors.Join(err, os.RemoveAll(path))
}

// editConfig has another config in the place of the granted one for a moment: one that names a
// command or a folder that nobody approved, or none at all.
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
			text = strings.Replace(text, "attempts: {", "attempts: {setup: "+command("setup")+", worktrees: "+h.trap()+", ", 1)
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
