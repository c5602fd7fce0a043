package transport

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store/backend"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

const (
	passes = `{"action":"accept","content":{"decision":"pass","feedback":"Fine"}}`
	fails  = `{"action":"accept","content":{"decision":"fail","feedback":"No"}}`
)

// A person's question is a row: who answers it, about what and how is what that says, whatever server is asked and
// whatever comes back with an answer. Each case has a project of its own, two servers, and a client that asks its user.
func TestWhatBindsAPersonsAnswer(t *testing.T) {
	t.Parallel()
	type asked struct {
		*testing.T
		s               *Server
		root, id, key   string
		ann, bob, plain *taker
	}
	finish := func(c *taker, id, more string) map[string]any {
		r, fault := c.request("tools/call", "finished_step", `"name":"finished_step","arguments":`+finishText(id)+more)
		testkit.Need(c.t, fault == "", "%v", fault)
		return r
	}
	keyOf := func(r map[string]any) (key string) {
		requests, _ := r["inputRequests"].(map[string]any)
		for key = range requests {
		}
		return key
	}
	answer := func(a *asked, c *taker, key, said string) map[string]any {
		return finish(c, a.id, fmt.Sprintf(`,"requestState":"passed","inputResponses":{%q:%s}`, key, said))
	}
	terminal := func(a *asked, passed bool) error {
		stores := testkit.Get(backend.Open(t.Context(), state.Of(a.root), backend.Choice{}, false, slog.New(slog.DiscardHandler))).Must(a.T)
		defer stores.Close(t.Context())
		e := testkit.Get(workflow.Open(t.Context(), workflow.Options{Root: a.root, Stores: stores})).Must(a.T)
		defer e.Close(t.Context())
		s := testkit.Get(a.s.session(t.Context(), "ann", a.id)).Must(a.T)
		digest := ""
		if q := s.Progress("text").Question; q != nil {
			digest = q.Digest
		}
		return e.ReviewFor(t.Context(), a.id, "text", digest, machine.Answer{Identity: "local", Channel: session.ChannelTerminal, Passed: passed, Feedback: "Seen"})
	}
	const open, passed = "Waiting: a person must pass", "status:next_step"
	for name, test := range map[string]struct {
		do   func(a *asked) map[string]any // its result is looked at
		want string
		kind machine.EvidenceKind // of the step afterwards
	}{
		"the answer of the client": {func(a *asked) map[string]any { return answer(a, a.ann, a.key, passes) }, passed, machine.PassedIn},
		"a decline is no answer, and is not asked again": {func(a *asked) map[string]any {
			for _, no := range []string{`{"action":"decline"}`, `{"action":"accept","content":{"decision":"yes"}}`} {
				testkit.Contains(a, fmt.Sprint(answer(a, a.ann, a.key, no)), open, "declined")
			}
			r := finish(a.ann, a.id, "")
			testkit.Equal(a, keyOf(r), "", "asked again")
			return r
		}, open, ""},
		"a form that was declined and is answered after all": {func(a *asked) map[string]any {
			answer(a, a.ann, a.key, `{"action":"cancel"}`)
			return answer(a, a.ann, a.key, passes)
		}, passed, machine.PassedIn},
		"silence": {func(a *asked) map[string]any {
			testkit.Equal(a, keyOf(finish(a.ann, a.id, "")), a.key, "the question that is asked again")
			return finish(a.plain, a.id, "")
		}, open, ""},
		"another caller": {func(a *asked) map[string]any { return answer(a, a.bob, a.key, passes) }, "StateError", ""},
		"other content": {func(a *asked) map[string]any {
			write(a, a.root, map[string]string{"text.txt": "other"})
			r := answer(a, a.ann, a.key, passes)
			testkit.True(a, keyOf(r) != "" && keyOf(r) != a.key, "the question about other content: %v", r)
			return finish(a.plain, a.id, "")
		}, open, ""},
		"the question of another session": {func(a *asked) map[string]any {
			other := a.ann.start()
			return finish(a.ann, other, fmt.Sprintf(`,"inputResponses":{%q:%s}`, a.key, passes))
		}, "inputRequests", ""},
		"the terminal was first": {func(a *asked) map[string]any {
			must(a, terminal(a, true))
			r := answer(a, a.ann, a.key, fails)
			testkit.Contains(a, fmt.Sprint(r["content"]), "did not count", "the later answer")
			return r
		}, passed, machine.Passed},
		"the terminal is later": {func(a *asked) map[string]any {
			r := answer(a, a.ann, a.key, passes)
			testkit.Fails(a, terminal(a, false), "does not wait for a person")
			return r
		}, passed, machine.PassedIn},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &asked{T: t, root: t.TempDir()}
			write(t, a.root, textJob(`by: human, quality_criteria: {Sound: "Would you sign it?"}`, "Dear"))
			file, token := tokens(t, "ann", "bob")
			a.s, a.ann = takingWith(t, a.root, `{"elicitation":{}}`, web.Options{TokenFile: file}, nil)
			of := func(token, can string) *taker {
				return &taker{t, httpClient(t, token), a.ann.url, can}
			}
			a.ann, a.bob, a.plain = of(token[0], a.ann.can), of(token[1], a.ann.can), of(token[0], `{"elicitation":{"url":{}}}`)
			a.id = a.ann.start()
			r := finish(a.ann, a.id, "")
			a.key = keyOf(r)
			testkit.Need(t, a.key != "" && r["requestState"] == a.key, "asked: %v", r)
			testkit.Contains(t, fmt.Sprint(test.do(a)), test.want, "the reply")
			s := testkit.Get(a.s.session(t.Context(), "ann", a.id)).Must(t)
			e := s.Progress("text").Evidence
			testkit.True(t, test.kind == "" && e == nil || test.kind != "" && e != nil && e.Kind == test.kind && e.Channel != "", "evidence %+v, want %q", e, test.kind)
		})
	}
}

// A client is asked only where an agent could override a review, too.
func TestAPersonAloneIsNotAskedInAClient(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, textJob(`by: human, quality_criteria: {Sound: "Would you sign it?"}`, "Dear"))
	_, c := takingWith(t, root, `{"elicitation":{}}`, web.Options{}, func(o *Options) { o.Override = "human" })
	r := fmt.Sprint(c.call("finished_step", finishText(c.start())))
	testkit.True(t, !strings.Contains(r, "inputRequests") && strings.Contains(r, "Waiting: a person"), "%s", r)
}
