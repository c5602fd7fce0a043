package browser

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
)

// overHTTP are the arguments of a server with MCP and pages.
var overHTTP = []string{"serve", "--transport", "http"}

// dark emulates a system with a dark theme, or a light one.
func dark(yes bool) chromedp.Action[chromedp.Void] {
	scheme := map[bool]string{true: "dark", false: "light"}[yes]
	return func(ctx context.Context, t *chromedp.Target) (none chromedp.Void, err error) {
		_, err = cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		return none, err
	}
}

// Every page shows hostile texts as texts, in light and dark, and fits a narrow screen; axe-core has no
// serious objection.
func TestEveryPage(t *testing.T) {
	s := serve(t, pagetest.Project(t), overHTTP...)
	b := browse(t, s)
	w := s.begin(pagetest.Connect(t, s.url, ""))
	paths := w.paths()
	paths["missing"], paths["login"] = "/sessions/ffffffff", "/login"
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		b.open(paths[name])
		b.check(name)
	}
	if os.Getenv("DEEPWORK_TEST_AXE") == "" {
		t.Skip("accessibility was not tested: DEEPWORK_TEST_AXE is not set")
	}
}

// axe is the text of axe-core, "" if it is not to be used.
var axe = sync.OnceValues(func() (string, error) {
	file := os.Getenv("DEEPWORK_TEST_AXE")
	if file == "" && os.Getenv("DEEPWORK_TEST_BROWSER_REQUIRED") != "" {
		return "", errors.New("DEEPWORK_TEST_AXE is not set: it is the path of axe-core's axe.min.js")
	} else if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	return string(text), err
})

// check looks at the page that is open, with everything unfolded: wide and narrow, light and dark.
func (b *tab) check(name string) {
	b.t.Helper()
	script, err := axe()
	testkit.Must(b.t, err)
	b.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll('details').forEach(d => d.open = true)`))
	if eval[bool](b, `'hit' in window || !!document.querySelector('img')`) {
		b.t.Errorf("%s ran a script of a text", name)
	}
	if title := eval[string](b, `document.title`); !strings.HasSuffix(title, "· deepwork") {
		b.t.Errorf("%s has the title %q", name, title)
	}
	if script != "" {
		b.do(chromedp.Evaluate[chromedp.Void](script))
	}
	for _, width := range []int64{1200, 400} {
		b.do(chromedp.EmulateViewport(width, 900))
		b.until(fmt.Sprintf(`innerWidth === %d`, width))
		if over := eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
			b.t.Errorf("%s is %d pixels wider than %d: %s", name, over, width, eval[string](b, widest))
		}
		for _, night := range []bool{false, true} {
			b.do(dark(night))
			b.until(fmt.Sprintf(`matchMedia('(prefers-color-scheme: dark)').matches === %v`, night))
			if light := eval[bool](b, `/rgb\(2\d\d/.test(getComputedStyle(document.body).backgroundColor)`); light == night {
				b.t.Errorf("%s: a light page is %v although dark is %v", name, light, night)
			}
			b.shoot(fmt.Sprintf("%s-%d%s", name, width, map[bool]string{true: "-dark"}[night]))
			if script == "" {
				continue
			}
			for _, v := range b.violations() {
				b.t.Errorf("%s, %d pixels, dark %v: %s", name, width, night, v)
			}
		}
	}
	b.do(dark(false), chromedp.EmulateViewport(1200, 900))
}

// widest names what is wider than the page.
const widest = `[...document.querySelectorAll('main *, header *')].filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && !e.parentElement.closest('.scroll, pre')).slice(0, 5).map(e => e.outerHTML.slice(0, 150)).join('\n')`

// violations returns what axe-core finds that is serious.
func (b *tab) violations() []string {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](`window.found = undefined; axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}).then(r => { window.found = r.violations; }); 0`))
	b.until(`window.found`)
	return eval[[]string](b, `window.found.filter(v => v.impact === 'serious' || v.impact === 'critical').map(v => v.id + ': ' + v.help + v.nodes.slice(0, 3).map(n => '\n' + n.html.slice(0, 200) + '\n' + n.failureSummary).join(''))`)
}
