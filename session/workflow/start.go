package workflow

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"deepwork/actor/telemetry"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/branch"
	"deepwork/session/codes"
	"deepwork/session/definition"
	"deepwork/session/machine"
	"deepwork/session/pin"
	"deepwork/session/record"
	"deepwork/session/replies"
	"deepwork/session/store"
)

// A Started is the result of a start_workflow.
type Started struct {
	Began []store.Session // the session, and those that it has begun for steps that are workflows
	Reply *replies.Start
}

// Start starts a session (seed 000, 001.3). The session is on disk when it returns; if only its branch could not be
// made, it is returned with the error. around returns the session to nest it in, "" for none, and a notice about the
// workflow with this name, such as job/workflow; it is not called for a Root.
func (e *Engine) Start(
	ctx context.Context, who Caller, a StartArgs,
	around func(ctx context.Context, workflow string) (parent, notice string, err error),
) (*Started, error) {
	j, wf, err := e.toBegin(ctx, a)
	if err != nil {
		return nil, err
	}
	def := machine.Define(j, wf.Name).For(&machine.State{Isolated: a.Isolated})
	if len(wf.Entries) == 0 {
		return nil, machine.NoSteps(def)
	}
	inputs, err := CheckInputs(e.Root, wf, a.Inputs)
	if err != nil {
		return nil, err
	}

	parent, notice := "", ""
	if !a.Root {
		if parent, notice, err = around(ctx, j.Name+"/"+wf.Name); err != nil {
			return nil, err
		}
	}

	how, err := e.Reviewing(ctx)
	if err == nil {
		err = e.enter(ctx)
	}
	if err != nil {
		return nil, err
	}

	def, texts, err := e.first(ctx, e.Root, def, inputs)
	if err != nil {
		return nil, err
	}
	b := machine.NewSession{
		Goal:       a.Goal,
		Inputs:     inputs,
		InstanceID: a.InstanceID,
		Identity:   who.Identity,
		Place:      e.Place,
		AttemptID:  e.Attempt,
		At:         e.now(),
		Call:       who.Call,
		Texts:      texts,
		Pinned:     e.policy.Pin(how, def, nil),
		Isolated:   a.Isolated,
		Trace:      e.traceFor(ctx, parent),
	}

	if parent != "" {
		b.Parent = &parent
	}
	b.Notice = strings.TrimSpace(definition.LastGood(e.Catalog, j) + " " + otherName(a, j, wf) +
		strings.TrimSpace(e.policy.Unclosable(how, def, 0)+" "+notice))
	b.BranchName = branch.Name(j.Name, wf.Name, a.InstanceID, b.At)

	if err := e.planBranch(ctx, &b); err != nil {
		return nil, err
	}

	by := *who.MovedBy
	if a.Root {
		by = ""
	}
	rows, r, err := e.create(ctx, how, def, b, by)
	if err != nil {
		return nil, err
	}
	if b.BranchDue {
		err = e.makeBranch(ctx, rows[0].ID, who)
	}
	return &Started{rows, r}, err
}

// makeBranch makes the branch of a session that has begun.
func (e *Engine) makeBranch(ctx context.Context, id string, who Caller) error {
	_, err := ask(ctx, e, id, func(ctx context.Context, a *sessionActor) (struct{}, error) {
		return struct{}{}, a.branched(ctx, who)
	})
	return err
}

// toBegin returns the job and the workflow that a call names.
func (e *Engine) toBegin(ctx context.Context, a StartArgs) (*job.Job, *job.Workflow, error) {
	if strings.TrimSpace(a.Goal) == "" {
		return nil, nil, session.Wrong(codes.InvalidArgument,
			"Argument \"goal\" is blank: say what the user wants to accomplish, and call again.").
			With("argument", "goal")
	}

	j, err := definition.FindJob(ctx, e.Catalog, a.JobName)
	if err != nil {
		return nil, nil, err
	}
	wf, err := definition.FindWorkflow(j, a.WorkflowName)
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
		"The session may have been started or not: %v.", err).
		Next("see whether it was", "get_workflows").By("sessions list").
		Worded("Make the same call again with the same request_id; without one, see first whether get_workflows " +
			"lists the session in resumable.").Because(err)
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

// traceFor returns the trace of a new session: that of the session around it, or its caller's.
func (e *Engine) traceFor(ctx context.Context, parent string) string {
	if telemetry.On() && parent != "" {
		if r, err := e.records.Read(ctx, parent, nil); err == nil && r.State.Trace != "" { // else the caller's
			return telemetry.Text(refOf(r.State))
		}
	}
	return telemetry.Text(telemetry.Parent(ctx))
}
