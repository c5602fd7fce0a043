package browser

import (
	"path/filepath"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/state/statetest"
	"deepwork/transport/page/pagetest"
)

// What a project asks for and nobody has approved is shown in full, with the command that approves it.
func TestTrust(t *testing.T) {
	root := pagetest.Project(t)
	testkit.Write(t, filepath.Join(root, ".deepwork/config.yml"), variants+"quality_gate:\n  agent_review_command: [./review.sh, --strict]\n")
	env, err := statetest.Write(testkit.Dir(t)) // which trusts no folder
	testkit.Must(t, err)
	for name, value := range env {
		t.Setenv(name, value)
	}
	s := serve(t, root, overHTTP...)
	b := browse(t, s)
	b.open("/")
	b.until(`document.querySelector('[aria-labelledby=needs]').innerText.includes('Not approved')`)
	b.clickOn("[aria-labelledby=needs] .entry a", "")
	b.until(at("/trust"))
	for _, text := range []string{"Until you do, none of it happens", "deepwork trust", "echo LOUD", "./review.sh", "--strict", "config.yml:2", "config.yml:8"} {
		b.until(has(text))
	}
	if eval[bool](b, `!!document.querySelector('main form, main button')`) {
		t.Error("the page approves")
	}
	b.check("trust-waiting")
}
