package attempt

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"deepwork/catalog/config"
	"deepwork/session/attempt/runner"
)

// What a setup command of a server that was killed has started does not go on
// beside the next server's.
func TestSetupIsNotRunTwiceAtOnce(t *testing.T) {
	p := newProject(t)
	p.configure(func(c *config.Config) { c.Attempts.Setup = []string{"true"} })
	first := p.open(func(o *Options) { o.Passive = true })
	r := first.begin(first.newTask("! say once"))
	left := exec.Command("sleep", "1000")
	left.Env = append(os.Environ(), runner.Mark("setup-"+r.AttemptID))
	left.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	must(t, left.Start())
	t.Cleanup(func() { left.Process.Kill() })
	s := p.open()
	if now := s.ends(r.AttemptID); now.State != "completed" {
		t.Errorf("%+v: %s", now, deref(now.Error))
	}
	left.Process.Signal(syscall.SIGTERM) // only where it lives it ends by this
	left.Wait()
	if s := left.ProcessState.Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGKILL {
		t.Errorf("it went on: %v", left.ProcessState)
	}
}
