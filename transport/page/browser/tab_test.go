package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
)

// A tab is a page of a browser with cookies of its own.
type tab struct {
	t   testing.TB
	ctx context.Context
	at  string

	mu     sync.Mutex
	faults []string // what the console shows as an error
}

var browserOf = sync.OnceValues(func() (context.Context, error) {
	path, err := chromium()
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.WSURLReadTimeout(2*time.Minute),
		// a spare process for each page costs as much as the page
		chromedp.Flag("disable-features", "Translate,BlinkGenPropertyTrees,SpareRendererForSitePerProcess"))
	all, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(all) // it ends with this process
	return ctx, chromedp.Do(ctx)
})

// browse opens a tab of a browser that knows nothing of others.
func browse(t testing.TB, s *server) *tab {
	t.Helper()
	shared := testkit.Get(browserOf()).Must(t)
	ctx, cancel := chromedp.NewContext(shared, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx, at: s.url}
	b.do(chromedp.EmulateViewport(1200, 900))
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages { // until ctx ends
			if err != nil {
				return
			}

			if m.IsException() || m.Type == chromedp.ConsoleError &&
				!strings.Contains(m.Text, "Failed to load resource") && !strings.Contains(m.Text, "net::ERR_") &&
				!strings.Contains(m.Text, "htmx:sse:error") && !strings.Contains(m.Text, "Failed to fetch") {
				b.mu.Lock()
				b.faults = append(b.faults, m.Text)
				b.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, fault := range b.faults {
			t.Errorf("the console: %s", fault)
		}
	})

	return b
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	done := make(chan error, 1)
	go func() { done <- chromedp.Do(b.ctx, actions...) }()
	select {
	case err := <-done:
		testkit.Must(b.t, err)
	case <-time.After(2 * patience):
		b.t.Fatal("the browser does not answer")
	}
}

// open goes to a page and waits for its event stream, if it has one.
func (b *tab) open(path string) *tab {
	b.t.Helper()
	b.do(chromedp.Navigate(b.at + path))
	b.until(`document.readyState === 'complete' && typeof ago === 'function'`)
	b.until(`!document.body.hasAttribute('hx-sse:connect') || !!document.body._htmx?.sse`)
	return b
}

func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*patience)
	defer cancel()
	return testkit.Get(chromedp.Run(ctx, chromedp.Evaluate[T](expression))).Must(b.t)
}

// is reports whether an expression is true. While a page is left it is not.
func (b *tab) is(expression string) bool {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
	return err == nil && yes
}

// until polls until each expression has been true, more slowly the longer that takes.
func (b *tab) until(expressions ...string) *tab {
	b.t.Helper()
	for _, expression := range expressions {
		pause := 10 * time.Millisecond
		for began := time.Now(); !b.is(expression); time.Sleep(pause) {
			pause = min(pause*5/4, 100*time.Millisecond)
			if time.Since(began) > patience {
				b.t.Fatalf("not true: %s\nat %s\n%v", expression,
					eval[string](b,
						`location.href + '\n' + Object.keys(document.body._htmx ?? {}) + '\n' + `+
							`document.body.innerText`), b.faults)
			}
		}
	}

	return b
}

// has is an expression: the page shows a text.
func has(text string) string { return fmt.Sprintf("document.body.innerText.includes(%q)", text) }

// in is an expression: an element, which a selector names, shows a text.
func in(css, text string) string {
	return fmt.Sprintf("document.querySelector(%q)?.innerText.includes(%q)", css, text)
}

func (b *tab) shows(texts ...string) *tab {
	b.t.Helper()
	for _, text := range texts {
		b.until(has(text))
	}
	return b
}

func (b *tab) run(statements string) *tab {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](statements))
	return b
}

// finder is a function that finds an element by a selector and, if it is not "", its text, among those that
// can be seen.
const finder = `const find = (css, text) => [...document.querySelectorAll(css)].find(e => e.checkVisibility() && ` +
	`(!text || e.textContent.trim() === text))`

// use waits until an element can be seen and is not covered, and runs statements with it as e, once.
func (b *tab) use(css, text, statements string) *tab {
	b.t.Helper()
	return b.until(fmt.Sprintf(`(() => { %s; const e = find(%q, %q); if (!e || e.disabled) return false;
		e.scrollIntoView({block: 'center'});
		const at = e.getBoundingClientRect(), hit = document.elementFromPoint(at.x + at.width / 2, at.y + `+
		`at.height / 2);
		if (!hit || !e.contains(hit) && !hit.contains(e)) return false;
		e.focus(); %s; return true; })()`, finder, css, text, statements))
}

func (b *tab) click(text string) *tab {
	b.t.Helper()
	return b.clickOn("button, a, summary", text)
}

// clickOn clicks on an element that a selector and a text, if it is not "", name.
func (b *tab) clickOn(css, text string) *tab {
	b.t.Helper()
	return b.use(css, text, `e.click()`)
}

// fill replaces the text of a field, as typing does.
func (b *tab) fill(css, text string) *tab {
	b.t.Helper()
	b.use(css, "", fmt.Sprintf(`e.select(); document.execCommand(%[1]q ? 'insertText' : 'delete', false, %[1]q)`, text))
	return b.until(fmt.Sprintf(`document.querySelector(%q).value === %q`, css, text))
}

func (b *tab) pick(css, option string) *tab {
	b.t.Helper()
	return b.use(css, "",
		fmt.Sprintf(`const o = [...e.options].find(o => o.text === %q && !o.disabled); if (!o) return false; `+
			`e.value = o.value; e.dispatchEvent(new Event('change', {bubbles: true}))`, option))
}

// press types keys, such as "j" or kb.Enter.
func (b *tab) press(keys ...string) *tab {
	b.t.Helper()
	for _, k := range keys {
		b.do(chromedp.KeyEvent(k))
	}
	return b
}

// shoot writes a picture of the page to the folder for them.
func (b *tab) shoot(name string) {
	b.t.Helper()
	if screenshots == "" {
		return
	}
	testkit.Must(b.t, os.MkdirAll(screenshots, 0o755))
	testkit.Must(b.t, os.WriteFile(filepath.Join(screenshots, name+".png"),
		testkit.Get(chromedp.Run(b.ctx, chromedp.FullScreenshot(100))).Must(b.t), 0o644))
}

// dark emulates a system with a dark theme, or a light one.
func dark(yes bool) chromedp.Action[chromedp.Void] {
	scheme := map[bool]string{true: "dark", false: "light"}[yes]
	return func(ctx context.Context, t *chromedp.Target) (none chromedp.Void, err error) {
		_, err = cdp.Call(ctx, t, emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{
				Name:  "prefers-color-scheme",
				Value: scheme,
			}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		return none, err
	}
}

// Every page shows hostile texts as texts, in light and dark, and fits a narrow screen; axe-core has no
// serious objection.
func TestEveryPage(t *testing.T) {
	s, call, b := open(t, nil)
	paths := begin(t, call)
	pagetest.Schedule(t, s.root, "weekly", "plan", pagetest.Hostile+"\n! exit 1", time.Now().Add(-50*time.Hour))
	b.open("/schedules/weekly").until(`document.querySelector('h1 .failing')`)
	paths["schedules"], paths["schedule"] = "/schedules", "/schedules/weekly"
	paths["missing"] = "/sessions/ffffffff"
	paths["login"] = "/login"
	paths["history"] = "/history"
	for name, path := range paths {
		b.open(path)
		b.check(name)
	}

	if os.Getenv("DEEPWORK_TEST_AXE") == "" {
		t.Skip("accessibility was not tested: DEEPWORK_TEST_AXE is not set")
	}
}

// axe is the text of axe-core, "" if it is not to be used.
var axe = sync.OnceValues(func() (string, error) {
	file := os.Getenv("DEEPWORK_TEST_AXE")
	if file == "" && os.Getenv("DEEPWORK_TEST_BROWSER_REQUIRED") == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	return string(text), err
})

// check looks at the page that is open, with everything unfolded: wide and narrow, light and dark.
func (b *tab) check(name string) *tab {
	b.t.Helper()
	script := testkit.Get(axe()).Must(b.t)
	b.run(`document.querySelectorAll('details').forEach(d => d.open = true)`)
	testkit.True(b.t, !eval[bool](b, `'hit' in window || !!document.querySelector('img:not(.handed > p > img)')`),
		"%s ran a script of a text", name)
	testkit.Contains(b.t, eval[string](b, `document.title`)+"\n", "· deepwork\n", "the title of %s", name)

	if script != "" {
		b.run(script)
	}
	for _, width := range []int64{1920, 320, 1200} {
		b.fits(name, width)
		for _, night := range []bool{false, true} {
			if night && width != 1200 {
				continue // its colors are the same at each width
			}
			b.do(dark(night))
			b.until(fmt.Sprintf(`matchMedia('(prefers-color-scheme: dark)').matches === %v`, night))
			testkit.Equal(b.t, eval[bool](b, `/rgb\(2\d\d/.test(getComputedStyle(document.body).backgroundColor)`),
				!night, "%s is light", name)
			b.shoot(fmt.Sprintf("%s-unfolded-%d%s", name, width, map[bool]string{true: "-dark"}[night]))
			rules := allRules
			switch {
			case script == "" || width == 1920:
				continue
			case night:
				rules = `'color-contrast'`
			case width == 320:
				rules = `'target-size', 'scrollable-region-focusable'`
			}
			b.run(`window.found = undefined; axe.run(document, {resultTypes: ['violations'], runOnly: [` + rules +
				`]}).then(r => { window.found = r.violations; }); 0`).until(`window.found`)
			serious := eval[[]string](b,
				`window.found.filter(v => v.impact === 'serious' || v.impact === 'critical').map(v => v.id + ': ' `+
					`+ v.help + v.nodes.slice(0, 3).map(n => '\n' + n.html.slice(0, 200) + '\n' + `+
					`n.failureSummary).join(''))`)
			testkit.Same(b.t, serious, nil, "%s, %d pixels, dark %v", name, width, night)
		}
	}
	b.do(dark(false), chromedp.EmulateViewport(1200, 900))
	return b
}

// fits makes the window this wide, which must suffice.
func (b *tab) fits(name string, width int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, 900))
	b.until(fmt.Sprintf(`innerWidth === %d`, width))
	testkit.True(b.t, b.is(`document.documentElement.scrollWidth <= document.documentElement.clientWidth`),
		"%s is wider than %d: %s", name, width, eval[string](b, widest))
}

// widest names what is wider than the page.
const widest = `[...document.querySelectorAll('main *, header *')].filter(e => e.getBoundingClientRect().right > ` +
	`document.documentElement.clientWidth + 1 && !e.parentElement.closest('.scroll, pre')).slice(0, 5).map(e => ` +
	`e.outerHTML.slice(0, 150)).join('\n')`

// allRules are the rules of axe-core that every page keeps, by their tags.
const allRules = `'wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'`

// person opens the pages of the project at root as the one who runs deepwork ui.
func person(t *testing.T, root string) *tab {
	t.Helper()
	pages := serve(t, root, "ui", "--no-open")
	b := browse(t, pages)
	b.open(pages.login[len(pages.url):])
	return b
}
