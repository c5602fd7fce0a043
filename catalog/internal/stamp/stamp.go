// Package stamp tells cheaply whether a file changed since it was read: what
// the system says of it without opening it, and reads that notice when the file
// is written meanwhile.
package stamp

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"time"
)

// Kind is what stands under a name, symlinks followed.
type Kind uint8

// The kinds of a file. Unknown is the zero value: never looked at.
const (
	Unknown Kind = iota
	Absent       // nothing is there, or a link that leads to nothing
	Regular
	Dir
	Other  // a device, a pipe, a socket
	Failed // the system would not say; Stamp.Fault is its error number
)

// A Stamp is the signature of a file: two equal stamps of one path mean that it
// was not written in between, if the first was Old enough when it was taken. It
// is comparable with ==.
type Stamp struct {
	Kind   Kind
	Fault  uint32 // error number, of kind Failed alone
	Size   int64  // bytes
	Mod    int64  // modification time, ns since 1970
	Change int64  // change of the inode where there is one, else creation; ns since 1970
	Dev    uint64 // device, 0 where there is none
	Ino    uint64 // inode, 0 where there is none
}

// Racy is how long after a write another write may leave the same stamp: file
// systems and kernels count time in ticks. Content younger than this must be
// compared itself (DESIGN "Read your own writes").
const Racy = 50 * time.Millisecond

// Settle is how long a file must have been left alone before it is believed: an
// editor that truncates and writes is caught between the two otherwise.
const Settle = 10 * time.Millisecond

// Changed returns when the file was last written, renamed or otherwise touched,
// as far as the stamp tells.
func (s Stamp) Changed() time.Time { return time.Unix(0, max(s.Mod, s.Change)) }

// tick is how far a file's times may lag behind the clock: kernels take them
// from the last tick of their timer.
const tick = 10 * time.Millisecond

// Age returns for how long, at least, the file had been unchanged at now. A time
// in the future, as another machine's clock may give it, counts as no age.
func (s Stamp) Age(now time.Time) time.Duration {
	return max(0, now.Sub(s.Changed())-tick)
}

// Identity returns what tells two files apart whatever they are called; both
// values are 0 where the system has no such thing.
func (s Stamp) Identity() (dev, ino uint64) { return s.Dev, s.Ino }

// ErrMoving is the error of Read for a file that changed while it was read.
var ErrMoving = errors.New("the file changed while it was read")

// A Path is a file's name, kept in the form that makes looking at it cheap.
// The zero Path is no file. It is immutable.
type Path struct {
	name string
	sys  sysPath
}

// At makes a Path of an absolute name. A name with a NUL byte is an absent file.
func At(name string) Path { return Path{name: name, sys: sysName(name)} }

// Name returns the name that the Path was made of.
func (p Path) Name() string { return p.name }

// Stat looks at the file, following symlinks. It never opens the file.
func (p Path) Stat() Stamp { return p.stat() }

// Read returns the whole content of a regular file of at most limit bytes, with
// the stamp that it had before and after. Errors: ErrMoving where the two differ
// or the file is not of that kind or size any more, else what the system said.
// A pipe or device that took the file's place does not block it.
func (p Path) Read(limit int64) ([]byte, Stamp, error) {
	before := p.Stat()
	if before.Kind != Regular || before.Size > limit {
		return nil, before, ErrMoving
	}
	f, err := os.OpenFile(p.name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		if p.Stat() != before {
			return nil, before, ErrMoving
		}
		return nil, before, err
	}
	defer f.Close()
	// One byte more than expected shows that the file has grown.
	data := make([]byte, before.Size+1)
	n, err := io.ReadFull(f, data)
	switch {
	case err == nil || p.Stat() != before:
		return nil, before, ErrMoving
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, before, err
	case int64(n) != before.Size:
		return nil, before, ErrMoving
	}
	return data[:n:n], before, nil
}

// Same reports whether the file now has this stamp and content with this
// SHA-256; it reads the file. It answers false where it cannot tell.
func (p Path) Same(s Stamp, sum [sha256.Size]byte) bool {
	data, now, err := p.Read(s.Size)
	return err == nil && now == s && sha256.Sum256(data) == sum
}
