package page

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"deepwork/actor/xslices"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/run"
	"deepwork/session/store"
	"deepwork/session/workflow"
)

// A sessionPage shows one session.
type sessionPage struct {
	*workflow.SessionInfo
	State    *machine.State          // nil if it cannot be read
	Above    []*workflow.SessionInfo // what it is nested in, the outermost first
	Children []*workflow.SessionInfo
	Timeline [][]stepView // the entries of the workflow, the members of a group together
	Fault    string       // why the steps that have not begun are not shown
	Trace    board.Trace  // in which it is
	Only     string       // the id of the one step that is shown, "" for all

	engine *workflow.Engine
}

// A stepView is a step on the timeline.
type stepView struct {
	Step     *job.Step             // nil if the definition cannot be read
	Progress *machine.StepProgress // nil if it has not begun
	ID       string
	Current  bool
	Digest   string             // what a person who overrides its reviews has seen
	Files    []judging.FileHash // and its files
	Answer   *answerForm        // nil if nobody is asked to pass its outputs
	Brief    bool               // what was said and judged is on a page of its own
	List     *run.Step          // what stands for the steps of all items, or nil; then nothing else is set
}

// maxDetails is how many bytes of what was said and judged a page shows.
const maxDetails = 40 << 10

// Elsewhere returns where the session's files are, or "" if they are here.
func (p *sessionPage) Elsewhere() string { return p.engine.Elsewhere(&p.Session) }

// Whys says, in a sentence for each step, why steps have to be done again or wait for a person.
func (p *sessionPage) Whys() (all []string) {
	for _, e := range p.State.StepProgress {
		if text := e.Value.Why().Sentence(); text != "" && p.State.IsCurrent(e.Key) {
			all = append(all, text)
		}
	}
	return all
}

// fit makes steps brief that are not current if everything would be too much, or leaves out all but one.
func (p *sessionPage) fit(only string) {
	if _, _, item := job.SplitItem(only); item && p.State.Progress(only) != nil {
		step, _ := p.engine.Step(p.State, only) // nil if it cannot be read
		p.Timeline = [][]stepView{{p.step(step, only)}}
	}
	all, _ := json.Marshal(p.State) // about what a page shows of it
	for _, group := range p.Timeline {
		for i, v := range group {
			if v.ID == only {
				p.Only, p.Timeline = only, [][]stepView{{v}}
				return
			}
			group[i].Brief = len(all) > maxDetails && !v.Current
		}
	}
}

// Reviewed reports whether the step has reviews or checks, or misses its schemas, so that a person can
// override that now.
func (v stepView) Reviewed() bool {
	return v.Current && v.Step != nil && (len(v.Step.Reviews)+len(v.Step.Checks) > 0 || v.Progress.Unfit() != nil)
}

// Unfold reports whether a try is shown unfolded: the newest one of a step that has to
// be done again.
func (v stepView) Unfold(a *machine.Try) bool {
	return v.Current && a.OpenedAt.Equal(v.Progress.Newest().OpenedAt) && a.State != machine.TryPassed
}

func (s *Site) session(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	p, err := s.readSession(ctx, who, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if p.State != nil && s.Board != nil {
		p.Trace = s.Board.TraceOf(ctx, p.State.Trace)
	}
	p.fit(r.URL.Query().Get("step"))
	if who.Has(session.RightPerson) {
		p.showHandIns(ctx)
	}
	title := p.Goal
	title = cmp.Or(title, p.ID)
	return &shown{view: "session", title: title, data: p, topics: p.topics()}, nil
}

// maxRelated is how many related sessions a page follows each by itself.
const maxRelated = 20

// topics are those of the session, its ancestors and its children, including later ones: the stream of an open page
// keeps its topics.
func (p *sessionPage) topics() []string {
	related := append([]*workflow.SessionInfo{p.SessionInfo}, p.Above...)
	if len(related) > maxRelated {
		return []string{store.SessionChanged}
	}
	on := xslices.Map(related, func(i *workflow.SessionInfo) string { return store.SessionChanged + ":" + i.ID })
	return append(on, childrenTopic+":"+p.ID)
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

// readSession reads a session that the caller sees: its own, one of an attempt that it sees, or any for the
// owner of the server.
func (s *Site) readSession(ctx context.Context, who session.Caller, id string) (*sessionPage, error) {
	all, err := s.sessions(ctx)
	if err != nil {
		return nil, err
	}

	p := &sessionPage{engine: s.Engine}
	if !p.find(all, id, who) || p.AttemptID != "" && !s.seesAttempt(ctx, who, p.AttemptID) {
		return nil, session.Wrong(codes.UnknownSession, "There is no session %q here.", id)
	}
	return p, p.read(ctx)
}

func (s *Site) seesAttempt(ctx context.Context, who session.Caller, id string) bool {
	if s.Board == nil {
		return false
	}
	_, err := s.Board.GetAttempt(ctx, who, attempt.AttemptArgs{Target: board.Target{AttemptID: &id}})
	return err == nil
}

// find finds a session, its ancestors and its children, and reports whether it is there. A caller sees the sessions of
// the attempts that it sees; of the others, its own.
func (p *sessionPage) find(all []*workflow.SessionInfo, id string, who session.Caller) bool {
	by := make(map[string]*workflow.SessionInfo, len(all))
	for _, i := range all {
		by[i.ID] = i
	}

	p.SessionInfo = by[id]
	if p.SessionInfo == nil || p.AttemptID == "" && !sees(who, p.SessionInfo) {
		return false
	}
	shown := func(i *workflow.SessionInfo) bool {
		return i.AttemptID == p.AttemptID && (p.AttemptID != "" || sees(who, i))
	}
	for _, i := range all {
		if i.Parent == id && shown(i) {
			p.Children = append(p.Children, i)
		}
	}
	for up := by[p.Parent]; up != nil && shown(up) && len(p.Above) < len(all); up = by[up.Parent] {
		p.Above = slices.Insert(p.Above, 0, up)
	}

	return true
}

// read reads the record of the session and its definition, if they can be read.
func (p *sessionPage) read(ctx context.Context) (err error) {
	if p.State, err = p.engine.Read(ctx, p.ID); err != nil {
		return err
	}
	def, err := p.engine.Definition(p.State)
	if err != nil {
		p.Fault = err.Error()
		for _, e := range p.State.StepProgress {
			p.Timeline = append(p.Timeline, []stepView{p.step(nil, e.Key)})
		}
		return nil
	}
	for _, entry := range run.Look(ctx, &board.RunReply{SessionID: &p.ID, Open: true}, p.engine, nil).Tree.Entries {
		p.Timeline = append(p.Timeline, xslices.Map(entry, func(s *run.Step) stepView {
			if s.List != nil {
				return stepView{List: s}
			}
			return p.step(def.Job.Step(s.ID), s.ID)
		}))
	}

	return nil
}

func (p *sessionPage) step(step *job.Step, id string) stepView {
	v := stepView{
		Step:     step,
		Progress: p.State.Progress(id),
		ID:       id,
		Current:  p.State.Status == machine.Active && p.State.IsCurrent(id),
	}
	v.Answer = answerFormOf(p.engine, p.State, id)
	if v.Reviewed() {
		v.Digest, v.Files = workflow.GivenFor(p.State, id)
	}
	return v
}

// placeOf returns which step of its workflow a session is at, such as 2 of 5, "" if its definition cannot be read.
func (s *Site) placeOf(i *workflow.SessionInfo) string {
	flow, known := s.workflowCache.Load(i.Definition)
	if !known {
		def, err := s.Engine.Definition(&machine.State{Definition: machine.DefinitionRef{Hash: i.Definition}})
		if err != nil {
			return "" // it has none yet, or its page says why
		}
		flow = def.Workflow
		s.workflowCache.Store(i.Definition, flow)
	}
	w := flow.(*job.Workflow)
	at := w.Find(i.Step)
	if at < 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d", at+1, len(w.Entries))
}

// stepOf returns where a session is in its workflow, such as step 2 of 5, or "".
func (s *Site) stepOf(i *workflow.SessionInfo) string {
	if place := s.placeOf(i); place != "" {
		return "step " + place
	}
	return ""
}

// An answerForm asks a person to pass the outputs of a step or, if About says why, to say how its rounds go on.
type answerForm struct {
	SessionID, Step, Digest, About, Notes string

	Files    []judging.FileHash
	Criteria []job.Criteria
	Shown    []handedFile // empty on pages that only link to the files
	Gone     []string     // files that only an earlier hand-in had
}

// answerFormOf returns the form for a step of a session, or nil if nobody is asked about it.
func answerFormOf(e *workflow.Engine, state *machine.State, stepID string) *answerForm {
	q, err := state.ToAnswer(stepID, "")
	if err != nil {
		return nil
	}
	f := &answerForm{
		SessionID: state.SessionID,
		Step:      stepID,
		Digest:    q.Content,
		About:     q.Turn().About,
		Files:     q.Files,
	}
	if q.Notes != nil {
		f.Notes = *q.Notes
	}
	if step, err := e.Step(state, stepID); err == nil { // else the page says that it cannot be read
		for _, r := range step.ReviewsBy(true) {
			f.Criteria = append(f.Criteria, r.Criteria...)
		}
	}
	return f
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

// childrenTopic is the topic of the sessions that are nested in another one: children:SESSION.
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
				if i.Parent != "" {
					s.Touch(childrenTopic + ":" + i.Parent)
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
