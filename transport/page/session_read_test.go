package page_test

import (
	"net/http"
	"strings"
	"testing"

	"deepwork/catalog/config"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

// A session that an attempt's agent has in its workspace has a page for callers that see the attempt, with
// its outputs and its actions, whichever server its agent uses.
func TestSessionsInWorkspaces(t *testing.T) {
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Rights: config.RightAgents}, config.Token{Name: "bob", Rights: config.RightAgents})
	s := serve(t, pagetest.Project(t), web.Options{TokenFile: file})
	call := pagetest.Connect(t, s.url, tokens[0])
	_, id := call.Script("plan it", "! echo from the workspace > idea.txt\n")
	call.Await(t, id, "completed")
	var attempt struct {
		Repos []struct {
			Path string `json:"worktree_path"`
		}
	}
	call("get_attempt", map[string]any{"attempt_id": id}, &attempt)
	inside := pagetest.Connect(t, serve(t, attempt.Repos[0].Path, web.Options{}).url, "")
	session := inside.Plan(pagetest.Hostile)
	inside("finished_step", map[string]any{"session_id": session, "outputs": map[string]any{"idea": "idea.txt"}}, nil)

	b, bob, at := s.browser(t), s.browser(t), "/sessions/"+session
	bob.login(tokens[1])
	for _, page := range []string{at, at + "/output?path=idea.txt", "/attempts/" + id} {
		if a := bob.do("GET", page, nil); a.StatusCode != http.StatusNotFound || strings.Contains(a.text, "from the workspace") {
			t.Errorf("bob sees %s: %s\n%s", page, a.Status, a.text)
		}
	}
	b.login(tokens[0])
	text := b.get(at)
	for _, want := range []string{"window.hit", `href="/attempts/` + id, "output?path=idea.txt", "/go-to", "/abort"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, "<script>window") {
		t.Errorf("the page has a script of its goal:\n%s", text)
	}
	if text := b.get(at + "/output?path=idea.txt"); !strings.Contains(text, "from the workspace") {
		t.Errorf("the output is another:\n%s", text)
	}
	for _, action := range []string{"/go-to?step=idea", "/abort?reason=x"} {
		if a := bob.act(at+action, bob.csrf("/board")); a.StatusCode != http.StatusNotFound {
			t.Errorf("bob may do %s: %s\n%s", action, a.Status, a.text)
		}
		if a := b.act(at+action, b.csrf("/board")); a.StatusCode != http.StatusSeeOther {
			t.Errorf("%s: %s\n%s", action, a.Status, a.text)
		}
	}
	if text := b.get(at); !strings.Contains(text, "aborted") {
		t.Errorf("the session goes on:\n%s", text)
	}
}
