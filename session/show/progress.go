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

// Draw shows a line at the end of a screen, in place of the one that it showed last, until anything is
// printed on any screen. Without a terminal it shows nothing.
func (s *Screen) Draw(line string) {
	if !s.Draws() {
		return
	}
	drawing.Lock()
	defer drawing.Unlock()
	if line == drawn && progress.Load() != nil {
		return
	}
	EndProgress()
	drawn = line
	erase := sync.OnceFunc(func() { _, _ = io.WriteString(s.to, "\r\x1b[K") })
	progress.Store(&erase)
	_, _ = io.WriteString(s.to, s.paint(faint, Clip(Inline(line), s.Width()-1)))
}

// drawing is held while a line is drawn, and while a screen removes it to print something else.
var drawing sync.Mutex

// drawn is the line that Draw showed last; drawing guards it.
var drawn string

// EndProgress removes the progress from the terminal. Whoever writes there without a Screen calls it first.
func EndProgress() {
	if end := progress.Swap(nil); end != nil {
		(*end)()
	}
}
