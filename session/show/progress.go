package show

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// The times of progress: when it is shown first, and how often it is drawn.
const (
	progressAfter = time.Second
	progressEvery = time.Second
)

// Progress shows on a screen how long a command has been at work, from the second second on. It ends when
// anything is printed there or on one of the other screens, or when end is called, which waits for its
// goroutine. Without a terminal it shows nothing.
func (s *Screen) Progress(what string, others ...*Screen) (end func()) {
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
	for _, screen := range append(others, s) {
		screen.progress.Store(&end)
	}
	return end
}

// EndProgress removes the progress from the screen. Whoever writes to the terminal without the screen calls it
// first.
func (s *Screen) EndProgress() {
	if end := s.progress.Load(); end != nil {
		(*end)()
	}
}
