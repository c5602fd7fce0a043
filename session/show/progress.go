package show

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// The times of progress: when it is shown first, and how often it is drawn.
const (
	progressAfter = time.Second
	progressEvery = time.Second
)

// progress ends what is shown; a process is at one terminal.
var progress atomic.Pointer[func()]

// Progress shows on a screen how long a command has been at work, from the second second on. It ends when
// anything is printed on any screen, or when end is called, which waits for its goroutine. Without a terminal it
// shows nothing.
func (s *Screen) Progress(what string) (end func()) {
	if !s.Draws() {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	end = sync.OnceFunc(func() { close(stop); <-stopped })
	go func() {
		defer close(stopped)
		began, after := time.Now(), progressAfter
		for drawn := ""; ; after = progressEvery {
			select {
			case <-stop:
				if drawn != "" {
					_, _ = io.WriteString(s.to, "\r\x1b[K")
				}
				return
			case <-time.After(after):
			}
			line := fmt.Sprintf("%s … %s", what, time.Since(began).Round(time.Second))
			if line = Clip(line, s.Width()-1); line != drawn {
				drawn = line
				_, _ = io.WriteString(s.to, "\r"+s.paint(faint, line)+"\x1b[K")
			}
		}
	}()
	progress.Store(&end)
	return end
}

// EndProgress removes the progress from the terminal. Whoever writes there without a Screen calls it first.
func EndProgress() {
	if end := progress.Load(); end != nil {
		(*end)()
	}
}
