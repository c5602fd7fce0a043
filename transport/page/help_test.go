package page_test

import (
	"net/http"
	"regexp"
	"testing"
	"testing/fstest"

	"deepwork/actor/testkit"
	"deepwork/transport"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

// The page Help shows the documentation that the program has, whose links lead to each other there.
func TestHelp(t *testing.T) {
	t.Parallel()
	s := serveOf(t, transport.Options{ProjectRoot: pagetest.Project(t), Version: "1.2.3", Help: fstest.MapFS{
		"README.md":      {Data: []byte("# All of it\n\nSee [the first](howto/first.md#then).\n")},
		"howto/first.md": {Data: []byte("# The first\n\n## Then\n\n```sh\n$ <b>\n```\n\nBack to [all](../README.md).\n")},
	}}, web.Options{})
	b := s.browser(t)
	testkit.Contains(t, b.get("/"), `<footer><a href="/help/README.md">Help</a> · deepwork 1.2.3</footer>`)
	testkit.ContainsAll(t, b.get("/help/README.md"), []string{"<title>All of it · ", `<a href="howto/first.md#h-then">the first</a>`})
	testkit.ContainsAll(t, b.get("/help/howto/first.md"), []string{`<h2 id="h-then">Then</h2>`, `$ &lt;b&gt;`, `<a href="../README.md">all</a>`})
	for _, path := range []string{"/help", "/help/", "/help/none.md", "/help/howto", "/help/..%2fhelp.go"} {
		testkit.Equal(t, b.do("GET", path, nil).StatusCode, http.StatusNotFound, "%s", path)
	}
	without := serve(t, pagetest.Project(t), web.Options{}).browser(t)
	testkit.Equal(t, without.do("GET", "/help/README.md", nil).StatusCode, http.StatusNotFound)
	testkit.Equal(t, regexp.MustCompile(`href="/help`).FindString(without.get("/")), "")
}
