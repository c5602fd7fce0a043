package web

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// racyFor is how old a file must be for its time and size to tell whether it was
// changed: a younger one may be changed again within one tick of its clock.
const racyFor = 2 * time.Second

// A tokenFile is the file of --token-file. Each request looks whether it was
// changed; a change that is bad, and a file that vanishes, leave the last good
// tokens in use and are logged.
type tokenFile struct {
	path   string
	logger *slog.Logger
	read   atomic.Pointer[tokenReading] // the newest
	turn   sync.Mutex                   // one reads, the others wait, so that a withdrawn token never passes
}

type tokenReading struct {
	tokens []credential
	info   fs.FileInfo // of the file when it was read; nil: it could not be
	at     time.Time   // when it was read
	bad    string      // why its newest content is not in use
}

// openTokenFile reads a token file that must be good and have a token.
func openTokenFile(path string, logger *slog.Logger) (*tokenFile, error) {
	tokens, info, err := readTokens(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the token file %s: %w", path, err)
	case len(tokens) == 0:
		return nil, fmt.Errorf("the token file %s has no token: add the line that deepwork token new NAME prints to stderr", path)
	}
	f := &tokenFile{path: path, logger: logger}
	f.read.Store(&tokenReading{tokens: tokens, info: info, at: time.Now()})
	return f, nil
}

// tokens returns those of the file as it is now.
func (f *tokenFile) tokens() []credential {
	r := f.read.Load()
	if !f.stale(r) {
		return r.tokens
	}
	f.turn.Lock()
	defer f.turn.Unlock()
	if r = f.read.Load(); !f.stale(r) {
		return r.tokens
	}
	tokens, info, err := readTokens(f.path)
	next := &tokenReading{tokens: tokens, info: info, at: time.Now()}
	if err != nil {
		next.tokens, next.bad = r.tokens, err.Error()
	}
	switch {
	case next.bad != "" && next.bad != r.bad:
		f.logger.Error("the token file is bad; the tokens that were good stay in use", "file", f.path, "error", next.bad)
	case next.bad == "" && r.bad != "":
		f.logger.Info("the token file is good again", "file", f.path, "tokens", len(tokens))
	}
	f.read.Store(next)
	return next.tokens
}

func (f *tokenFile) stale(r *tokenReading) bool {
	info, err := os.Stat(f.path)
	if err != nil || r.info == nil {
		return err == nil || r.info != nil || r.bad == ""
	}
	return !os.SameFile(info, r.info) || info.Size() != r.info.Size() || !info.ModTime().Equal(r.info.ModTime()) ||
		r.at.Sub(info.ModTime()) < racyFor && time.Since(r.at) > racyFor/20
}

// readTokens reads and parses a token file. What it says of a file it could open
// comes with the file's state.
func readTokens(path string) ([]credential, fs.FileInfo, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, bare(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, bare(err)
	}
	if !info.Mode().IsRegular() {
		return nil, info, errors.New("it is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(file, maxTokenFile+1))
	switch {
	case err != nil:
		return nil, info, bare(err)
	case len(data) > maxTokenFile:
		return nil, info, fmt.Errorf("it is larger than %d bytes", maxTokenFile)
	}
	tokens, err := parseTokens(data)
	return tokens, info, err
}

// bare leaves the path out of an error that is told beside the path.
func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
