package browser

import (
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
)

// A person at deepwork ui answers for a session of another server: first on the page Now, that the agent is
// to do more, then on that of the session, which shows the new outputs without a reload.
func TestAPersonPassesAStep(t *testing.T) {
	root := pagetest.Project(t)
	testkit.WriteAll(t, root, report)
	testkit.Write(t, root+"/.deepwork/jobs/report/job.yml", strings.Replace(report[".deepwork/jobs/report/job.yml"], "{run_each: out,", "{run_each: out, by: human,", 1))
	s, ui := serve(t, root, overHTTP...), serve(t, root, "ui", "--no-open")
	call := pagetest.Connect(t, s.url, "")
	id := call.Start(args{"goal": "Write about the sea", "job_name": "report", "workflow_name": "write"})
	finish := func(file string) string {
		t.Helper()
		var r struct {
			Status   string
			Feedback string
		}
		call("finished_step", args{"session_id": id, "step_id": "draft", "outputs": args{"out": file}, "notes": "I kept it short."}, &r)
		return r.Status + " " + r.Feedback
	}
	b := browse(t, ui)
	b.open(ui.login[len(ui.url):])
	if said := finish("bad.txt"); !strings.HasPrefix(said, "needs_work Waiting: ") {
		t.Fatal(said)
	}
	b.until(`document.querySelector('[aria-labelledby=needs]').innerText.includes('Write about the sea')`)
	b.use("summary", "Answer: Step draft: Write about the sea", `e.click()`)
	b.until(has("Is it good?") + " && " + has("I kept it short."))
	b.check("now with a question")
	b.shoot("now-asks")
	b.click("Fail")
	b.until(refused("Say what the agent is to change"))
	b.fill(`textarea[name="feedback"]`, "Say more about the waves")
	b.click("Fail")
	b.until(`document.querySelector('[aria-labelledby=needs]').innerText.includes('Nothing waits for you')`)
	if said := finish("bad.txt"); said != "needs_work Say more about the waves" {
		t.Error(said)
	}

	b.open("/sessions/" + id)
	b.until(step("Draft") + `.innerText.includes('Say more about the waves')`)
	finish("good.txt")
	b.until(`!!document.querySelector('form.answer') && ` + step("Draft") + `.innerText.includes('good.txt')`)
	b.check("session with a question")
	b.shoot("session-asks")
	b.click("good.txt")
	b.until(at("/sessions/"+id+"/output") + " && " + has("this one is good"))
	b.open("/sessions/" + id)
	b.fill(`textarea[name="feedback"]`, "Well done")
	b.click("Pass")
	b.until(step("Draft") + `.innerText.includes('Passed by local')`)
	if said := finish("good.txt"); said != "next_step " {
		t.Error(said)
	}
	b.until(step("Draft") + `.innerText.includes('Passed by a person: local over page: Well done')`)
}
