package browser

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/transport/page/pagetest"
)

var csrfField = regexp.MustCompile(`name="csrf" value="([0-9a-f]+)"`)

// What the rights of a token do not allow is not offered, and refused with the name of the right.
func TestRights(t *testing.T) {
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Group: "web", Rights: config.AllRights}, config.Token{Name: "bob", Group: "web"})
	s := serve(t, pagetest.Project(t), append(overHTTP, "--token-file", file)...)
	w := s.begin(pagetest.Connect(t, s.url, tokens[0]))
	needs := map[string]string{ // the right for each kind of action
		"/runs": "agents", "/attempts/" + w.attempt + "/resume": "agents", "/tasks/" + w.task + "/start": "agents", "/attempts/" + w.attempt + "/follow-up": "agents", "/attempts/" + w.attempt + "/comments": "agents", "/attempts/" + w.attempt + "/comments/send": "agents",
		"/attempts/" + w.attempt + "/git/merge": "merge", "/attempts/" + w.attempt + "/git/rebase": "merge", "/attempts/" + w.attempt + "/git/push": "merge", "/attempts/" + w.attempt + "/git/target": "merge",
	}
	form := url.Values{"executor": {"SCRIPT"}, "workflow": {"trip/plan"}, "goal": {"x"}, "action": {"send"}, "prompt": {"x"}, "remote": {"origin"}, "branch": {"main"}, "file": {"idea.txt"}, "line": {"1"}, "text": {"x"}}
	for i, name := range []string{"ann", "bob"} {
		jar, _ := cookiejar.New(nil) // without options it does not fail
		client := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		ask := func(path string, form url.Values) (status int, text string) {
			t.Helper()
			send := func() (*http.Response, error) { return client.Get(s.url + path) }
			if form != nil {
				send = func() (*http.Response, error) { return client.PostForm(s.url+path, form) }
			}
			res, err := send()
			testkit.Must(t, err)
			defer res.Body.Close()
			all, err := io.ReadAll(res.Body)
			testkit.Must(t, err)
			return res.StatusCode, string(all)
		}
		if status, text := ask("/login", url.Values{"token": {tokens[i]}}); status != http.StatusSeeOther {
			t.Fatalf("%d %s", status, text)
		}
		_, task := ask("/tasks/"+w.task, nil)
		_, attempt := ask("/attempts/"+w.attempt, nil)
		_, job := ask("/jobs/trip", nil)
		if !strings.Contains(task, w.attempt) || !strings.Contains(attempt, "idea.txt") {
			t.Fatalf("%s does not see the work of the group:\n%s", name, task)
		}
		form.Set("csrf", csrfField.FindStringSubmatch(task)[1])
		for path, right := range needs {
			offered := strings.Contains(task+attempt+job, `action="`+path+`"`)
			if name == "bob" && offered {
				t.Errorf("bob is offered %s", path)
			}
			if name == "ann" && (path == "/runs" || strings.HasSuffix(path, "/start") || strings.HasSuffix(path, "/merge") || strings.HasSuffix(path, "/follow-up")) && !offered {
				t.Errorf("ann is not offered %s", path)
			}
			if name == "ann" {
				continue
			}
			status, text := ask(path, form)
			if status != http.StatusForbidden || !strings.Contains(text, "the right "+right) {
				t.Errorf("bob, %s: %d\n%s", path, status, text)
			}
		}
	}
}
