package browser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

// again starts a server that was killed, at its port.
func (s *server) again() {
	s.t.Helper()
	s.start("--port", s.url[strings.LastIndex(s.url, ":")+1:])
}

// A page whose login has ended stays, with what was typed, and says where to log in.
func TestAPageStaysWhenItsLoginEnds(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(testkit.Dir(t), "tokens")
	token, line, err := web.NewToken(config.Token{Name: "ann", Rights: config.RightAgents})
	testkit.Must(t, err)
	_, other, err := web.NewToken(config.Token{Name: "bob"})
	testkit.Must(t, err)
	allow := func(lines ...string) {
		testkit.Must(t, os.WriteFile(tokens, []byte(strings.Join(lines, "\n")), 0o600))
	}
	allow(line, other)

	s := serve(t, pagetest.Project(t), append(overHTTP, "--token-file", tokens)...)
	ann := browse(t, s)
	ann.open("/login").fill("#token", token).use("button", "Log in", `e.click()`).until(at("/") + " && " + has("ann"))
	task := ann.newTask("Half a thought", "")
	ann.open(task).fill("#more", "ten minutes of work").run(`window.same = true`)

	s.kill()
	ann.until(`!document.getElementById('link').hidden`)
	allow(other)
	s.again()
	ann.until(`!document.getElementById('out').hidden && document.getElementById('link').hidden`)
	kept := `window.same && location.pathname === "` + task + `" && document.getElementById('more').value === ` +
		`'ten minutes of work'`
	ann.until(kept)
	testkit.Equal(t, eval[string](ann, `document.querySelector('#out a').pathname`), "/login", "the way to log in is")

	// a form is not sent, and is not emptied
	ann.click("Start").until(refused("Log in in another tab"), kept)
	allow(line, other)
	ann.until(`document.getElementById('out').hidden`, kept)
}

// A page at the port of its project goes on when its server was killed and started again: the person is logged in where
// connections tell whose they are, and else logs in beside it.
func TestAPageOutlastsARestart(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), "ui", "--no-open")
	s.kill()
	s.start() // at the project's own port
	b := browse(t, s)
	b.open(s.login[len(s.url):])
	task, own := b.newTask("A boat", ""), s.url
	b.open(task).fill("#more", "ten minutes of work").run(`window.same = true`)

	s.kill()
	b.until(`!document.getElementById('link').hidden`)
	s.start()
	testkit.Equal(t, s.url, own, "the pages are")
	if !web.CanKnowPeers() {
		b.until(`!document.getElementById('out').hidden`).run(`fetch("` + s.login + `")`)
	}
	b.until(`document.getElementById('link').hidden && document.getElementById('out').hidden`,
		`window.same && document.getElementById('more').value === 'ten minutes of work'`)
	b.click("Edit").fill("#title", "A ship").click("Save").until(in("h1", "A ship"),
		`window.same && document.getElementById('more').value === 'ten minutes of work'`)
}

// A dialog covers the page: while the server is gone it says so itself, and that its form was not sent.
func TestADialogSaysThatItsServerIsGone(t *testing.T) {
	s, _, b := open(t, nil)
	b.open("/board").click("New task").fill("#title", "Buy a boat")
	s.kill()
	b.until(in("#new", "the server does not answer")).click("Add the task").until(in("#new .unsent", "was not sent"),
		`document.getElementById('new').open && document.getElementById('title').value === 'Buy a boat'`)

	s.again()
	b.until(`!document.querySelector('#new .trouble') && document.getElementById('new').open`)
	b.click("Add the task").until(at("/tasks/") + " && " + has("Buy a boat"))
}

// A reply that is no page, as that of a server that stops, takes no page's place, and news takes nothing that was
// typed.
func TestNewsTakesNothingThatWasTyped(t *testing.T) {
	_, call, b := open(t, nil)
	task := b.newTask("A boat", "Blue")
	b.open(task).click("Edit").fill("#description", "Blue, with a sail")
	b.run(`const reply = window.fetch; window.fetch = async (...of) => of[1]?.method === 'POST' ?
		new Response('the server is stopping', {status: 503}) : reply(...of)`)
	b.click("Save").until(refused("the server is stopping"),
		`document.getElementById('description').value === 'Blue, with a sail'`)

	id := strings.TrimPrefix(task, "/tasks/")
	call("update_task", args{"task_id": id, "title": "A ship", "description": "Red"}, nil)
	b.until(in("h1", "A ship"), `document.getElementById('description').value === 'Blue, with a sail'`)
	call("delete_task", args{"task_id": id}, nil)
	b.until(refused("no field any more for what you typed"),
		`document.getElementById('description').value === 'Blue, with a sail'`)
}
