package browser

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"deepwork/actor/testkit"
)

// Every page of a project in which much happens, and of one that is new, fits its window. The
// pictures are for people to look at: DEEPWORK_TEST_SCREENSHOTS is the folder that they are
// written to. Those of the README are in ../pictures.
func TestPictures(t *testing.T) {
	needBrowser(t)
	if screenshots != "" {
		testkit.Must(t, os.MkdirAll(screenshots, 0o755))
	}
	project := openShop(t)
	b := person(t, project.root)
	project.override(b)
	for name, path := range project.paths() {
		b.pictures(name, path)
	}

	t.Setenv("XDG_CONFIG_HOME", testkit.Dir(t)) // where no folder is trusted
	b = person(t, project.root)
	b.pictures("trust-waiting", "/trust")
	b.pictures("now-waiting", "/")

	empty := testkit.Dir(t)
	testkit.Git(t, empty, "init", "-q", "-b", "main")
	b = person(t, empty)
	for name, path := range map[string]string{"now-empty": "/", "board-empty": "/board", "jobs-empty": "/jobs", "sources-empty": "/sources", "trust-empty": "/trust", "login": "/login"} {
		b.pictures(name, path)
	}
}

// person opens the pages of the project at root as the one who runs deepwork ui.
func person(t *testing.T, root string) *tab {
	t.Helper()
	pages := serve(t, root, "ui", "--no-open")
	b := browse(t, pages)
	secret, err := url.Parse(pages.login)
	testkit.Must(t, err)
	b.open(secret.RequestURI())
	return b
}

// pictures takes pictures of a page in light, dark and on a narrow screen, and writes them if somebody looks at them.
func (b *tab) pictures(name, path string) {
	b.t.Helper()
	for _, as := range []struct {
		name  string
		width int64
		dark  bool
	}{{"light", 1280, false}, {"dark", 1280, true}, {"narrow", 400, false}} {
		b.do(chromedp.EmulateViewport(as.width, 900), dark(as.dark))
		b.open(path)
		if over := eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
			b.t.Errorf("%s is %d pixels wider than %d: %s", name, over, as.width, eval[string](b, widest))
		}
		picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		testkit.Must(b.t, err)
		if screenshots != "" {
			testkit.Must(b.t, os.WriteFile(filepath.Join(screenshots, fmt.Sprintf("%s-%s.png", name, as.name)), picture, 0o644))
		}
	}
}
