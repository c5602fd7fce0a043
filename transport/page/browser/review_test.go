package browser

import (
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
)

// Comments on lines are made with the mouse and with keys, removed, and sent as one follow-up; the diff
// is unified or split, and has a tree.
func TestComments(t *testing.T) {
	root := pagetest.Project(t)
	testkit.Write(t, filepath.Join(root, ".deepwork/config.yml"), "executors:\n  SCRIPT:\n    command: [sh, -c, 'sed -n \"s/^! //p\" | sh -e']\n    resume: [cat]\n")
	s := serve(t, root, overHTTP...)
	call := pagetest.Connect(t, s.url, "")
	id := s.works(call, "Three lines", `mkdir -p src/deep; printf 'a\nb\nc\n' > src/deep/three.txt; echo x > top.txt; git add -A; git commit -qm work`)
	b := browse(t, s)
	b.open("/attempts/" + id)
	comment := func(text string) {
		t.Helper()
		b.until(`document.getElementById('comment').open`)
		b.fill("#comment-text", text)
		b.click("Add the comment")
		b.until(`!document.getElementById('comment').open && [...document.querySelectorAll('.diff .remark')].some(e => e.innerText.includes('` + text + `'))`)
	}
	// With the mouse, at a number.
	b.clickOn(`[data-file="src/deep/three.txt"] tr:nth-child(3) .no:nth-child(2)`, "")
	b.until(`document.querySelector('#comment [data-where]').textContent === 'src/deep/three.txt:2' && document.querySelector('#comment [data-quote]').textContent === 'b'`)
	b.check("commenting")
	comment("why b")
	b.until(`document.querySelector('.tree').innerText.includes('1 comment') && document.querySelector('.tree summary').innerText === 'src/deep'`)
	// With keys: the arrows walk the lines.
	b.use(`.scroll:has([data-file="top.txt"])`, "", ``)
	b.press(kb.ArrowDown, kb.ArrowDown, kb.Enter)
	b.until(`document.querySelector('#comment [data-where]').textContent === 'top.txt:1'`)
	comment("why x")
	b.clickOn(`.diff tr:nth-child(2) .no:nth-child(2)`, "")
	comment("never mind")
	if got := eval[string](b, `document.getElementById('comment-text').value`); got != "" {
		t.Errorf("the dialog still has %q", got)
	}
	b.clickOn(`.comments li:has(p.text) button[aria-label*="three.txt:1"]`, "Remove")
	b.until(`document.querySelectorAll('.comments li').length === 2 && !(` + has("never mind") + `)`)
	// Split, and back; the address is a link.
	b.click("split")
	b.until(`location.search.includes('diff=split') && document.querySelectorAll('.diff.split .remark').length === 2`)
	b.check("comments-split")
	b.click("Send 2 comments to the agent")
	b.until(said("goes on with the comments") + ` && !document.querySelector('.comments')`)
	b.until(`document.querySelectorAll('#runs li').length === 2`)
	for _, part := range []string{"src/deep/three.txt", "why b", "top.txt", "why x"} { // the agent prints what it is sent
		b.until(`document.querySelector('.messages').innerText.includes('` + part + `')`)
	}
	// One file alone, from a fresh address.
	b.open("/attempts/" + id + "?path=top.txt")
	b.until(`document.querySelectorAll('.file').length === 1 && ` + has("all files"))
}
