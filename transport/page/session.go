package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/store"
	"deepwork/session/workflow"
)

// A sessionView is a session with those around it.
type sessionView struct {
	*workflow.SessionInfo
	State *machine.State
	Above []*workflow.SessionInfo // what it is nested in, the outermost first
	// Related are those that are nested in it and, of an attempt, the others that are nested in none.
	Related   []*workflow.SessionInfo
	Elsewhere string // where its files are, "" if they are here

	root *workflow.SessionInfo // the root session of its attempt that moved last
}

// session shows a chat session. The session of an attempt is on the page of that.
func (s *Site) session(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	v, err := s.readSession(ctx, who, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	only := r.URL.Query().Get("step")
	if v.AttemptID != "" {
		to := url.URL{Path: "/attempts/" + v.AttemptID}
		if v.root != v.SessionInfo || only != "" {
			to.RawQuery = url.Values{"session": {v.ID}, "step": {only}}.Encode()
		}
		return &shown{to: to.String()}, nil
	}

	p := &workPage{FullAttemptReply: new(attempt.FullAttemptReply), At: "/sessions/" + v.ID, Session: v}
	if s.Board != nil {
		p.Trace = s.Board.TraceOf(ctx, v.State.Trace)
	}
	if err := s.sessionSteps(ctx, who, only, p); err != nil {
		return nil, err
	}
	return &shown{view: "work", title: p.Title(), data: p, topics: v.topics()}, nil
}

// topics are those of the session, its ancestors and its children, including later ones: the stream of an open page
// keeps its topics.
func (v *sessionView) topics() []string {
	on := []string{childrenTopic + ":" + v.ID}
	for _, i := range append(v.Above, v.SessionInfo) {
		on = append(on, store.SessionChanged+":"+i.ID)
	}
	return on
}

// onSession returns the action that calls do with a session that the caller sees.
func (s *Site) onSession(do func(context.Context, session.Caller, string, url.Values) error) action {
	return func(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
		p, err := s.readSession(ctx, who, r.PathValue("id"))
		if err != nil {
			return "", err
		}
		return localURL(r.PostForm.Get("back"), "/sessions/"+p.ID), do(ctx, who, p.ID, r.PostForm)
	}
}

func (s *Site) abortSession(ctx context.Context, _ session.Caller, id string, form url.Values) error {
	reason := strings.TrimSpace(form.Get("reason"))
	if reason == "" {
		return session.Wrong(codes.ReasonNeeded, "Say why the session is aborted.")
	}
	return s.Engine.AbortFor(ctx, id, reason)
}

func (s *Site) goToStep(ctx context.Context, _ session.Caller, id string, form url.Values) error {
	seen, err := strconv.ParseInt(form.Get("revision"), 10, 64)
	if err != nil || seen == 0 {
		return session.Wrong(codes.InvalidArgument, "Send the revision of the session that the page showed; got %q.",
			form.Get("revision"))
	}
	return s.Engine.GoToFor(ctx, id, form.Get("step"), seen)
}

// overrideStep overrides the reviews of a step for the person at the page. The form says which outputs they saw.
func (s *Site) overrideStep(ctx context.Context, who session.Caller, id string, form url.Values) error {
	if err := forPerson(who, "Overriding a review", "override"); err != nil {
		return err
	}

	reason := strings.TrimSpace(form.Get("reason"))
	if reason == "" {
		return session.Wrong(codes.ReasonNeeded,
			"Say why the step may go on without its reviews; the session records it.")
	}
	return s.Engine.OverrideFor(ctx, id, form.Get("step"),
		judging.Override{GivenFor: form.Get("given"), Identity: who.Identity, Channel: who.Channel, Reason: reason})
}

// forPerson returns an error for a caller without the right person.
func forPerson(who session.Caller, what, command string) error {
	if who.Has(session.RightPerson) {
		return nil
	}
	return session.NotNow(codes.RightNeeded,
		"%s needs the right person, which %s does not have: open the pages with deepwork ui, or run deepwork "+
			"sessions %s at a terminal.", what, who.Identity, command)
}

func unknownSession(id string) error {
	return session.Wrong(codes.UnknownSession, "There is no session %q here.", id)
}

// readSession reads a session that the caller sees: its own, one of an attempt that it sees, or any for the
// owner of the server.
func (s *Site) readSession(ctx context.Context, who session.Caller, id string) (*sessionView, error) {
	all, err := s.sessions(ctx)
	if err != nil {
		return nil, err
	}

	v := &sessionView{}
	if !v.find(all, id, who) || v.AttemptID != "" && !s.seesAttempt(ctx, who, v.AttemptID) {
		return nil, unknownSession(id)
	}
	v.Elsewhere = s.Engine.Elsewhere(&v.Session)
	v.State, err = s.reader.Read(ctx, v.ID)
	return v, err
}

func (s *Site) seesAttempt(ctx context.Context, who session.Caller, id string) bool {
	if s.Board == nil {
		return false
	}
	_, err := s.Board.GetAttempt(ctx, who, attempt.AttemptArgs{Target: board.Target{AttemptID: &id}})
	return err == nil
}

// find finds a session and those around it, and reports whether it is there. A caller sees the sessions of
// the attempts that it sees; of the others, its own.
func (v *sessionView) find(all []*workflow.SessionInfo, id string, who session.Caller) bool {
	by := flowsOf(all)
	v.SessionInfo = by[id]
	if v.SessionInfo == nil || v.AttemptID == "" && !sees(who, v.SessionInfo) {
		return false
	}
	v.root = by[v.AttemptID]
	shown := func(i *workflow.SessionInfo) bool {
		return i.AttemptID == v.AttemptID && (v.AttemptID != "" || sees(who, i))
	}
	for _, i := range all {
		root := i.Parent == "" && v.AttemptID != "" && i.ID != id
		if (i.Parent == id || root) && shown(i) && len(v.Related) < maxAlone {
			v.Related = append(v.Related, i)
		}
	}
	for up := by[v.Parent]; up != nil && shown(up) && len(v.Above) < len(all); up = by[up.Parent] {
		v.Above = slices.Insert(v.Above, 0, up)
	}

	return true
}

// stepOf returns at which step of its workflow a session is, such as step notes, 2 of 5, or "" if it has ended.
func (s *Site) stepOf(i *workflow.SessionInfo) string {
	if i.Status != string(machine.Active) {
		return ""
	}
	step := "step " + i.Step
	flow, known := s.workflowCache.Load(i.Definition)
	if !known {
		def, err := s.Engine.Definition(&machine.State{Definition: machine.DefinitionRef{Hash: i.Definition}})
		if err != nil {
			return step // its page says why
		}
		flow = def.Workflow
		s.workflowCache.Store(i.Definition, flow)
	}
	w := flow.(*job.Workflow)
	if at := w.Find(i.Step); at >= 0 {
		step += fmt.Sprintf(", %d of %d", at+1, len(w.Entries))
	}
	return step
}

// answer records what the person at the page decides about the outputs that the form showed.
func (s *Site) answer(ctx context.Context, who session.Caller, id string, form url.Values) error {
	if err := forPerson(who, "Passing a step", "review"); err != nil {
		return err
	}

	decision, digest := form.Get("decision"), form.Get("digest")
	a := machine.Answer{
		Identity: who.Identity,
		Channel:  who.Channel,
		Passed:   decision == "pass",
		Feedback: strings.TrimSpace(form.Get("feedback")),
	}
	switch {
	case decision == "stop":
		form.Set("reason", a.Feedback)
		return s.abortSession(ctx, who, id, form)
	case !slices.Contains([]string{"pass", "fail", "more"}, decision), digest == "":
		return session.Wrong(codes.BadDecision,
			"Send pass or fail as the decision, and the digest of the outputs that the page showed; got %q and %q.",
			decision, digest)
	case decision == "fail" && a.Feedback == "":
		return session.Wrong(codes.ReasonNeeded, "Say what the agent is to change.")
	}

	return s.Engine.ReviewFor(ctx, id, form.Get("step"), digest, a)
}

// A reader reads sessions, and keeps them until they change: a page reads one more than once, and again after news.
type reader struct {
	*workflow.Engine
	feed *feed
}

// Read returns a session.
func (r reader) Read(ctx context.Context, id string) (*machine.State, error) {
	return remember(r.feed, id, []string{store.SessionChanged + ":" + id}, func() (*machine.State, error) {
		return r.Engine.Read(ctx, id)
	})
}

// An index has the heads of all sessions, so that a page does not read each record again. It reads
// those that the feed says have changed. The zero value is empty.
type index struct {
	mu      sync.Mutex
	version uint64 // the number of the feed that it is as of; 0 means never
	all     map[string]*workflow.SessionInfo
	// newest has the same, the last changed one first; nil if that is not known. It is replaced, never
	// changed.
	newest []*workflow.SessionInfo
}

// childrenTopic is the topic of the sessions that are nested in another one, children:SESSION, or of an attempt,
// children:ATTEMPT.
const childrenTopic = "children"

// readSessions reads changed sessions while pages are open, and all at the start, so that the first page does not wait
// for them.
func (s *Site) readSessions(ctx context.Context) {
	if s.Chooser != nil {
		return
	}
	x := &s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.version == 0 || s.edits.streams.Load() > 0 {
		_ = x.read(ctx, s) // a page meets the error
	}
}

// read reads what has changed. x.mu is held.
func (x *index) read(ctx context.Context, s *Site) error {
	at := s.feed.position()
	ids, all := s.feed.since(x.version, store.SessionChanged)
	switch {
	case all || x.version == 0:
		list, err := s.Engine.List(ctx)
		if err != nil {
			return err
		}
		x.newest, x.all = nil, make(map[string]*workflow.SessionInfo, len(list))
		for _, i := range list {
			x.all[i.ID] = &i
		}
	case len(ids) > 0:
		x.newest = nil
		for _, id := range ids {
			switch i, err := s.Engine.Info(ctx, id); {
			case session.CodeOf(err) == codes.UnknownSession:
				delete(x.all, id)
			case err != nil:
				return err
			default:
				for _, of := range []string{i.Parent, i.AttemptID} {
					if of != "" {
						s.Touch(childrenTopic + ":" + of)
					}
				}
				x.all[id] = i
			}
		}
	}
	x.version = at
	return nil
}

// sessions returns all sessions, the last changed one first. The caller does not change them.
func (s *Site) sessions(ctx context.Context) ([]*workflow.SessionInfo, error) {
	x := &s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.read(ctx, s); err != nil {
		return nil, err
	}
	if x.newest == nil {
		x.newest = slices.SortedFunc(maps.Values(x.all), func(a, b *workflow.SessionInfo) int {
			return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), strings.Compare(a.ID, b.ID))
		})
	}
	return x.newest, nil
}

// sees reports whether a caller sees a session: its own, and the owner of the server all.
func sees(who session.Caller, i *workflow.SessionInfo) bool {
	return who.Owner || i.Identity == who.Identity
}
