package process

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
)

// lineSize is how much of one line of standard error a listener is told, in
// bytes; the rest of the line is left out.
const lineSize = 4000

// follow keeps the end of what f gives and tells listen each line of it.
func (t *tail) follow(f *os.File, listen func(line string)) {
	var line []byte
	tell := func() {
		text := strings.ToValidUTF8(strings.TrimRight(string(line), "\r"), "\uFFFD")
		if line = line[:0]; listen != nil && text != "" {
			listen(text)
		}
	}
	buf := make([]byte, 8<<10)
	for {
		n, err := f.Read(buf)
		t.Write(buf[:n])
		for rest := buf[:n]; len(rest) > 0; {
			part, after, ended := bytes.Cut(rest, []byte("\n"))
			line = append(line, part[:min(len(part), lineSize-len(line))]...)
			if rest = after; ended {
				tell()
			}
		}
		if err != nil {
			tell()
			return
		}
	}
}

// A watched pipe tells when its reader has come to its end.
type watched struct {
	file *os.File
	once sync.Once
	over chan struct{} // closed when the reader was told an error, or closed it
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.file.Read(p)
	if err != nil {
		w.end()
		if err != io.EOF {
			err = io.EOF // closed under its hands: whoever reads is to see an end
		}
	}
	return n, err
}

// Close implements io.Closer. Closing twice is no error.
func (w *watched) Close() error {
	w.end()
	w.file.Close()
	return nil
}

func (w *watched) end() { w.once.Do(func() { close(w.over) }) }
