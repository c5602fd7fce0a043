package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"deepwork/actor/testkit"
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
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(2*time.Minute))
	all, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(all) // it ends with this process
	return ctx, chromedp.Do(ctx)
})

// needBrowser skips a test that cannot run here.
func needBrowser(t testing.TB) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the agents are shell scripts")
	}
	if _, err := chromium(); err != nil {
		required(t, err.Error())
	}
}

// browse opens a tab of a browser that knows nothing of others.
func browse(t testing.TB, s *server) *tab {
	t.Helper()
	needBrowser(t)
	shared, err := browserOf()
	testkit.Must(t, err)
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
			if m.IsException() || m.Type == chromedp.ConsoleError && !strings.Contains(m.Text, "Failed to load resource") && !strings.Contains(m.Text, "net::ERR_") && !strings.Contains(m.Text, "htmx:sse:error") {
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

// do carries out actions.
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
func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.at + path))
	b.until(`document.readyState === 'complete' && typeof ago === 'function'`)
	b.until(`!document.body.hasAttribute('hx-sse:connect') || !!document.body._htmx?.sse`)
}

// eval returns what an expression is.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	testkit.Must(b.t, err)
	return value
}

// is reports whether an expression is true. While a page is left it is not.
func (b *tab) is(expression string) bool {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
	return err == nil && yes
}

// until waits until an expression is true, and returns how long that took.
func (b *tab) until(expression string) time.Duration {
	b.t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if b.is(expression) {
			return time.Since(began)
		}
		if time.Since(began) > patience {
			b.t.Fatalf("not true: %s\nat %s\n%v", expression, eval[string](b, `location.href + '\n' + Object.keys(document.body._htmx ?? {}) + '\n' + document.body.innerText`), b.faults)
		}
	}
}

// has is an expression: the page shows a text.
func has(text string) string { return fmt.Sprintf("document.body.innerText.includes(%q)", text) }

// finder is a function that finds an element by a selector and, if it is not "", its text, among those
// that can be seen.
const finder = `const find = (css, text) => [...document.querySelectorAll(css)].find(e => e.checkVisibility() && (!text || e.textContent.trim() === text))`

// use waits until an element can be seen and is not covered, and runs statements with it as e, once.
func (b *tab) use(css, text, statements string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`(() => { %s; const e = find(%q, %q); if (!e || e.disabled) return false;
		e.scrollIntoView({block: 'center'});
		const at = e.getBoundingClientRect(), hit = document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2);
		if (!hit || !e.contains(hit) && !hit.contains(e)) return false;
		e.focus(); %s; return true; })()`, finder, css, text, statements))
}

// click clicks on what has a text: a button, a link or the summary of details.
func (b *tab) click(text string) {
	b.t.Helper()
	b.clickOn("button, a, summary", text)
}

// clickOn clicks on an element that a selector and a text, if it is not "", name.
func (b *tab) clickOn(css, text string) {
	b.t.Helper()
	b.use(css, text, `e.click()`)
}

// fill replaces the text of a field, as typing does.
func (b *tab) fill(css, text string) {
	b.t.Helper()
	b.use(css, "", fmt.Sprintf(`e.select(); document.execCommand(%[1]q ? 'insertText' : 'delete', false, %[1]q)`, text))
	b.until(fmt.Sprintf(`document.querySelector(%q).value === %q`, css, text))
}

// pick chooses an option by its text.
func (b *tab) pick(css, option string) {
	b.t.Helper()
	b.use(css, "", fmt.Sprintf(`const o = [...e.options].find(o => o.text === %q && !o.disabled); if (!o) return false; e.value = o.value; e.dispatchEvent(new Event('change', {bubbles: true}))`, option))
}

// unseen fails the test if the page shows a text.
func (b *tab) unseen(text string) {
	b.t.Helper()
	if b.is(has(text)) {
		b.t.Errorf("the page shows %q:\n%s", text, eval[string](b, `document.body.innerText`))
	}
}

// press types keys, such as "j" or kb.Enter.
func (b *tab) press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.do(chromedp.KeyEvent(k))
	}
}

// shoot writes a picture of the page to the folder for them.
func (b *tab) shoot(name string) {
	b.t.Helper()
	if screenshots == "" {
		return
	}
	testkit.Must(b.t, os.MkdirAll(screenshots, 0o755))
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	testkit.Must(b.t, err)
	testkit.Must(b.t, os.WriteFile(filepath.Join(screenshots, name+".png"), picture, 0o644))
}
