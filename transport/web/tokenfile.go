package web

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"deepwork/catalog/config"
)

// A tokenFile is the file of --token-file. Each request reads it; a change that is bad,
// and a file that vanishes, leave the last good tokens in use and are logged.
type tokenFile struct {
	path   string
	logger *slog.Logger

	mu   sync.Mutex
	data []byte // as it was read last
	good []config.Token
	bad  string // why its newest content is not in use
}

// openTokenFile reads a token file that must be good and have a token.
func openTokenFile(path string, logger *slog.Logger) (*tokenFile, error) {
	data, err := readTokens(path)
	tokens, fault := parseTokens(data)
	switch err = cmp.Or(err, fault); {
	case err != nil:
		return nil, fmt.Errorf("reading the token file %s: %w", path, err)
	case len(tokens) == 0:
		return nil, fmt.Errorf("the token file %s has no token: add the line that deepwork token new NAME prints to stderr", path)
	}
	return &tokenFile{path: path, logger: logger, data: data, good: tokens}, nil
}

// tokens returns those of the file as it is now.
func (f *tokenFile) tokens() []config.Token {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := readTokens(f.path)
	if err == nil && f.bad == "" && bytes.Equal(data, f.data) {
		return f.good
	}
	tokens, fault := parseTokens(data)
	if err = cmp.Or(err, fault); err != nil {
		if why := err.Error(); why != f.bad {
			f.bad = why
			f.logger.Error("the token file is bad; the tokens that were good stay in use", "file", f.path, "error", why)
		}
		return f.good
	}
	if f.bad != "" {
		f.logger.Info("the token file is good again", "file", f.path, "tokens", len(tokens))
	}
	f.data, f.good, f.bad = data, tokens, ""
	return f.good
}

// readTokens reads a token file. The error does not name it.
func readTokens(path string) ([]byte, error) {
	data, err := func() ([]byte, error) {
		info, err := os.Stat(path) // opening a pipe would block
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, errors.New("it is not a regular file")
		}
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return io.ReadAll(io.LimitReader(file, maxTokenFile+1))
	}()
	if len(data) > maxTokenFile {
		err = fmt.Errorf("it is larger than %d bytes", maxTokenFile)
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return data, err
}
