package browser

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
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
	axe := os.Getenv("DEEPWORK_TEST_AXE")
	var check string
	if axe != "" {
		text, err := os.ReadFile(axe)
		testkit.Must(t, err)
		check = string(text)
	} else if os.Getenv("DEEPWORK_TEST_BROWSER_REQUIRED") != "" {
		t.Error("DEEPWORK_TEST_AXE is not set: it is the path of axe-core's axe.min.js")
	}
	paths := w.paths()
	paths["missing"], paths["login"] = "/sessions/ffffffff", "/login"
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		for _, width := range []int64{1200, 400} {
			b.do(chromedp.EmulateViewport(width, 900))
			b.open(paths[name])
			b.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll('details').forEach(d => d.open = true)`))
			if over := eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
				t.Errorf("%s is %d pixels wider than %d: %s", name, over, width, eval[string](b, widest))
			}
			if eval[bool](b, `'hit' in window || !!document.querySelector('img')`) {
				t.Errorf("%s ran a script of a text", name)
			}
			if title := eval[string](b, `document.title`); !strings.HasSuffix(title, "· deepwork") {
				t.Errorf("%s has the title %q", name, title)
			}
			for _, night := range []bool{false, true} {
				b.do(dark(night))
				b.until(fmt.Sprintf(`matchMedia('(prefers-color-scheme: dark)').matches === %v`, night))
				if light := eval[bool](b, `/rgb\(2\d\d/.test(getComputedStyle(document.body).backgroundColor)`); light == night {
					t.Errorf("%s: a light page is %v although dark is %v", name, light, night)
				}
				b.shoot(fmt.Sprintf("%s-%d%s", name, width, map[bool]string{true: "-dark"}[night]))
				if check == "" {
					continue
				}
				b.do(chromedp.Evaluate[chromedp.Void](check))
				for _, v := range b.violations() {
					t.Errorf("%s, %d pixels, dark %v: %s", name, width, night, v)
				}
			}
		}
	}
	if axe == "" {
		t.Skip("accessibility was not tested: DEEPWORK_TEST_AXE is not set")
	}
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
