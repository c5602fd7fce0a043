//go:build unix

package sim

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func (w *world) sourceFile() string { return filepath.Join(w.o.Dir, "executions") }

// startSource starts the source of workflows, or starts it again after a kill.
func (w *world) startSource() error {
	cmd := exec.Command(w.o.Source[0], w.o.Source[1:]...)
	address := w.sourceAddress
	if address == "" {
		address = "127.0.0.1:0"
	}
	cmd.Env = append(os.Environ(), SourceEnv+"="+w.sourceFile()+"@"+address)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // which ties it to this process
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	w.source = cmd
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return errors.Join(fmt.Errorf("starting the source of workflows: %w", err), w.endSource())
	}
	w.sourceAddress = strings.TrimSpace(line)
	return nil
}

// endSource kills the source, as a crash does, and waits for its end.
func (w *world) endSource() error {
	if w.source == nil {
		return nil
	}
	s := w.source
	w.source = nil
	err := s.Process.Kill()
	_ = s.Wait() // it was killed
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
