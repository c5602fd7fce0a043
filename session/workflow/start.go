package workflow

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/telemetry"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/branch"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/pin"
	"deepwork/session/record"
	"deepwork/session/replies"
	"deepwork/session/store"
)

// StartArgs are the parameters of start_workflow (seed 000, 001.3.2 and 3).
type StartArgs struct {
	Goal         string `json:"goal" arg:"What the user wants to achieve" max:"100000"`
	JobName      string `json:"job_name" arg:"Job name from get_workflows"`
	WorkflowName string `json:"workflow_name" arg:"Workflow name; any, if the job has only one"`
	// Inputs are values of the workflow's inputs, by name: a text, a path, or a list of paths. null means none.
	Inputs          map[string]outputs.Value `json:"inputs"`
	InstanceID      *string                  `json:"instance_id"`
	ParentSessionID *string                  `json:"parent_session_id"`
	// agents use this name because other tools have it
	SessionID *string `json:"session_id" arg:"Another name of parent_session_id" unlisted:"true"`
	RequestID *string `json:"request_id" arg:"Any text, for retries"`

	// Root starts a session without a parent, whatever is on the stack: it was ordered from outside, and
	// others will continue it. It does not count as in use yet.
	Root bool `json:"-"`
	// Isolated is set by runs that give items worktrees of their own: see machine.State.
	Isolated bool `json:"-"`
}

// Tags implements fieldtag.Tagger.
func (StartArgs) Tags() map[string]string {
	return map[string]string{
		"Inputs":          `arg:"Values of the workflow's inputs, by name: texts, paths or lists of paths"`,
		"InstanceID":      `arg:"Short name for the branch, such as acme. Default: the date"`,
		"ParentSessionID": `arg:"Session to nest in, 8 hex digits. Default: top of the stack"`,
	}
}

// Start starts a session and pushes it onto the stack (seed 000, 001.3). The session is on disk when it
// returns.
func (c *Conn) Start(ctx context.Context, a StartArgs) (*replies.Start, error) {
	request := a.RequestID
	a.RequestID = nil
	return call(ctx, c, machine.ToolStart, request, &a, func(who caller) (*replies.Start, string, error) {
		return c.start(ctx, who, a)
	}, func(r *replies.Start, id string, replayed bool) {
		r.SessionID = id
		if replayed {
			c.follow(ctx, r.BeginStep, id)
		}
		r.BeginStep = c.here(r.BeginStep)
		if replayed || a.Root {
			r.Stack = c.stackOf(ctx, id)
		}
		if !replayed || slices.ContainsFunc(r.Stack, func(e replies.StackEntry) bool { return e.SessionID == id }) {
			return
		}

		rows, err := c.engine.records.List(ctx, store.SessionQuery{IDs: []string{id}})
		if err == nil && len(rows) > 0 && rows[0].Status != string(machine.Active) {
			r.Notice = replies.Notice(r.Notice,
				fmt.Sprintf("This repeats the reply to the call that started session '%s', which has ended since (%s).",
					id, rows[0].Status))
		}
	})
}

func (c *Conn) start(ctx context.Context, who caller, a StartArgs) (*replies.Start, string, error) {
	e := c.engine
	j, wf, err := c.toBegin(ctx, a)
	if err != nil {
		return nil, "", err
	}
	def := machine.Define(j, wf.Name).For(&machine.State{Isolated: a.Isolated})
	if len(wf.Entries) == 0 {
		return nil, "", machine.NoSteps(def)
	}
	inputs, err := CheckInputs(e.Root, wf, a.Inputs)
	if err != nil {
		return nil, "", err
	}

	parent, stack := "", []replies.StackEntry{}
	if !a.Root {
		if parent, stack, err = c.parent(ctx, a); err != nil {
			return nil, "", err
		}
	}

	how, err := e.Reviewing(ctx)
	if err == nil {
		err = e.enter(ctx)
	}
	if err != nil {
		return nil, "", err
	}

	def, texts, err := e.beginning(ctx, e.Root, def, inputs)
	if err != nil {
		return nil, "", err
	}
	b := machine.NewSession{
		Goal:       a.Goal,
		Inputs:     inputs,
		InstanceID: a.InstanceID,
		Identity:   c.identity,
		Place:      e.Place,
		AttemptID:  e.Attempt,
		At:         e.now(),
		Call:       who.Call,
		Texts:      texts,
		Notice:     e.policy.Unclosable(how, def, 0),
		Pinned:     e.policy.Pin(how, def, nil),
		Isolated:   a.Isolated,
		Trace:      e.traceFor(ctx, parent),
	}

	if parent != "" {
		b.Parent = &parent
	}
	if !a.Root {
		b.Notice = strings.TrimSpace(b.Notice + " " + c.duplicates(ctx, j.Name+"/"+wf.Name, stack))
	}
	b.Notice = strings.TrimSpace(lastGood(e.Catalog, j) + " " + otherName(a, j, wf) + b.Notice)
	b.BranchName = branch.Name(j.Name, wf.Name, a.InstanceID, b.At)

	if err := e.planBranch(ctx, &b); err != nil {
		return nil, "", err
	}

	by := *who.MovedBy
	if a.Root {
		by = ""
	}
	rows, r, err := e.create(ctx, how, def, b, by)
	if err != nil {
		return nil, "", err
	}
	if !a.Root {
		c.push(rows)
		reply := *r
		reply.Stack, r = c.onTop(stack, rows), &reply
	}

	c.moved(nil)
	if b.BranchDue {
		err = e.makeBranch(ctx, rows[0].ID, who)
	}
	if err != nil {
		return nil, "", err
	}
	return r, rows[0].ID, nil
}

// makeBranch makes the branch of a session that has begun.
func (e *Engine) makeBranch(ctx context.Context, id string, who caller) error {
	_, err := ask(ctx, e, id, func(ctx context.Context, a *sessionActor) (struct{}, error) {
		return struct{}{}, a.branched(ctx, who)
	})
	return err
}

// toBegin returns the job and the workflow that a call names.
func (c *Conn) toBegin(ctx context.Context, a StartArgs) (*job.Job, *job.Workflow, error) {
	if strings.TrimSpace(a.Goal) == "" {
		return nil, nil, session.Wrong(codes.InvalidArgument,
			"Argument \"goal\" is blank: say what the user wants to accomplish, and call again.").
			With("argument", "goal")
	}

	j, err := findJob(ctx, c.engine.Catalog, a.JobName)
	if err != nil {
		return nil, nil, err
	}
	wf, err := findWorkflow(j, a.WorkflowName)
	return j, wf, err
}

// otherName says that the started workflow has another name than the one in the call.
func otherName(a StartArgs, j *job.Job, wf *job.Workflow) string {
	if wf.Name == a.WorkflowName {
		return ""
	}
	return fmt.Sprintf("Job '%s' has no workflow '%s': its only one, '%s', was started. ", j.Name,
		jsontext.Clip(a.WorkflowName, 200), wf.Name)
}

// beginning returns the definition with which a session of the workflow begins, and the texts of its first
// steps.
func (e *Engine) beginning(
	ctx context.Context, root string, def *machine.Definition, inputs outputs.Map,
) (*machine.Definition, machine.Instructions, error) {
	if err := e.definitions.CheckSchemas(def); err != nil {
		return nil, nil, err
	}

	first := machine.First(def, inputs)
	texts, err := e.definitions.Texts(def, first)
	if err == nil {
		def, err = e.protect(ctx, root, nil, def, first)
	}
	if err == nil {
		def, err = e.definitions.Keep(def, texts)
	}
	return def, texts, err
}

// create stores the session under a new id, with the sessions of those first steps that are workflows. If its
// branch is to be made, it also finds a free name for it.
func (e *Engine) create(
	ctx context.Context, how pin.Reviewing, def *machine.Definition, b machine.NewSession, by string,
) (rows []store.Session, r *replies.Start, err error) {
	name, taken := b.BranchName, map[string]bool{}
	for range 20 {
		b.SessionID = randomID(4)
		if b.BranchDue {
			b.BranchName, err = (branch.Tree{Root: e.Root}).Free(ctx, name, b.Branch == replies.BranchCheckedOut, taken)
			if err != nil {
				return nil, nil, gitFailed(name, err)
			}
		}

		s, r, err := machine.Begin(def, b)
		if err != nil {
			return nil, nil, err
		}

		s = s.WithSource(e.placeKey(), def.Job.Hash)
		w, made := record.Defining(def), &nestedWrites{root: e.Root}
		if err := e.calls(ctx, how, s, def, by, beginReply{&r.BeginStep, &r.ConcurrentSteps, &r.ConcurrentGroup},
			made); err != nil {
			return nil, nil, err
		}
		w.Also = made.writes
		_, err = e.records.Write(ctx, nil, store.Session{Root: e.Root, MovedBy: by}, s, w)
		if errors.Is(err, store.ErrPending) {
			err = e.createAgain(ctx, b, store.Session{Root: e.Root, MovedBy: by}, s, w)
		}
		switch {
		case errors.Is(err, store.ErrExists): // the id, or a branch name that git does not have yet
			taken[b.BranchName] = true
			continue
		case errors.Is(err, store.ErrRequested):
			return nil, nil, err
		case err != nil:
			return nil, nil, record.NotSaved(b.SessionID, err)
		}

		e.exports.Write(w.Session, s)
		made.written(e)
		telemetry.About(ctx, refOf(s))
		e.notifyMoved()
		return append([]store.Session{w.Session}, made.began()...), r, nil
	}

	return nil, nil, errors.New("no free session id and branch were found in 20 tries")
}

// createAgain stores a new session whose commit was not confirmed. Its id is written once: the second commit
// waits for the first one and finds what it has written. A stored session that has the reply to this call is
// this one.
func (e *Engine) createAgain(
	ctx context.Context, b machine.NewSession, row store.Session, s *machine.State, w *store.SessionWrite,
) error {
	w.Put, w.Gone = nil, nil // Write adds them again
	_, err := e.records.Write(ctx, nil, row, s, w)
	if err == nil || errors.Is(err, store.ErrRequested) {
		return err
	}

	stored, rerr := e.records.Read(ctx, b.SessionID, nil)
	switch {
	case rerr == nil && stored.State.OwnReply(b.Call) != nil:
		return nil
	// the branch belongs to another session
	case (rerr == nil || session.CodeOf(rerr) == codes.UnknownSession) && errors.Is(err, store.ErrExists):
		return err
	}

	return session.NotNow(codes.SessionUncertain,
		"The session may have been started or not: %v. Make the same call again with the same request_id; without "+
			"one, see first whether get_workflows lists the session in resumable.", err).Because(err)
}

// parent returns the parent of a new session, the named one or the top of the stack, and the stack. The top
// of a stateless connection may be another agent's.
func (c *Conn) parent(ctx context.Context, a StartArgs) (string, []replies.StackEntry, error) {
	id := a.ParentSessionID
	if named := a.SessionID; named != nil {
		if !machine.IsSessionID(*named) || id != nil && *id != *named {
			return "", nil, session.Wrong(codes.BadSessionID,
				"session_id '%s' says nothing to start_workflow: leave it out. The server knows its callers, and "+
					"begin_step.session_id of the reply is what the other tools take. To nest the workflow in a "+
					"session, pass that one's id as parent_session_id.", jsontext.Clip(*named, 100)).With("argument",
				"session_id")
		}
		id = named
	}
	if id == nil {
		rows, err := c.rows(ctx)
		if err != nil || len(rows) == 0 {
			return "", nil, err
		}
		return rows[len(rows)-1].ID, entriesOf(rows), nil
	}
	if !machine.IsSessionID(*id) {
		return "", nil, session.Wrong(codes.BadSessionID,
			"parent_session_id '%s' is not a session_id: expected 8 hexadecimal characters, as in begin_step and "+
				"stack.", jsontext.Clip(*id, 100))
	}

	row, err := c.resume(ctx, *id)
	if err != nil {
		return "", nil, err
	}
	if row.Status != string(machine.Active) {
		return "", nil, session.NotNow(codes.SessionEnded,
			"parent_session_id '%s' is a session that has ended (%s). Leave it out, or name an active one.", *id,
			row.Status)
	}
	return *id, c.stackOf(ctx, *id), nil
}

// planBranch applies git.branch to a new session: it decides whether to make a branch, and refuses if that
// would fail. It changes nothing.
func (e *Engine) planBranch(ctx context.Context, b *machine.NewSession) error {
	tree := branch.Tree{Root: e.Root}
	b.Branch = replies.BranchNamed
	if tree.Outside() {
		b.Branch = replies.BranchOutsideGit
	}

	if e.Config == nil {
		return nil
	}

	cfg, err := e.Config.Current(ctx)
	if err != nil {
		return session.NotNow(codes.ConfigInvalid, "The configuration cannot be used: %v. Correct it and call again.",
			err).Because(err)
	}
	switch mode := cfg.Git.Branch; {
	case mode != config.BranchCreate && mode != config.BranchCheckout:
		b.Notice = strings.TrimSpace(b.Notice + " " + e.branchNotice(cfg))
		return nil
	case b.Branch == replies.BranchOutsideGit:
		return session.NotNow(codes.NotAGitRepository,
			"git.branch is '%s', but %s is not in a git repository. Run `git init` there, or set git.branch to "+
				"'name' in .deepwork/config.yml.", mode, e.Root)
	case mode == config.BranchCheckout:
		b.Branch = replies.BranchCheckedOut
		err = tree.Switchable(ctx)
	default:
		b.Branch = replies.BranchCreated
	}

	b.BranchDue = true
	if dirty, ok := errors.AsType[*branch.DirtyError](err); ok {
		return session.NotNow(codes.DirtyTree,
			"git.branch is 'checkout', and %v. Commit or stash them, then call again.", err).With("files", dirty.Files)
	} else if err != nil {
		return gitFailed(b.BranchName, err)
	}

	return nil
}

// branchNotice says that git.branch is ignored without the user's approval, or returns "".
func (e *Engine) branchNotice(cfg *config.Config) string {
	if cfg.Approval == nil {
		return ""
	}

	asked, ok := cfg.Approval.Withheld.Of("git.branch")
	if !ok {
		return ""
	}
	return fmt.Sprintf("The user has not approved git.branch: %s of .deepwork/config.yml, so no branch was created, "+
		"and the work tree is on the one that it was on. If the branch matters, ask them to run `deepwork trust "+
		"--path %s` in a terminal, and start the workflow again.",
		strings.Trim(asked.Text, `"`), session.InShell(filepath.Dir(filepath.Dir(e.Config.Path()))))
}

func gitFailed(name string, err error) error {
	return session.NotNow(codes.GitFailed,
		"The branch '%s' could not be made, so no session was started: %v. Correct that, or set git.branch to 'name' "+
			"in .deepwork/config.yml.", name, err).Because(err)
}
