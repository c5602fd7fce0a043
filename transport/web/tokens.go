package web

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/actor/durable"
	"deepwork/catalog/config"
)

// tokenBytes is the number of random bytes of a token.
const tokenBytes = 32

// maxTokenFile is the maximum size of a token file.
const maxTokenFile = 1 << 20

// NewToken makes a bearer token for a caller with the name, the group and the rights of t. token is
// for the caller, to be shown once and never stored; line is the line of a token file,
// name:sha256[:group[:rights]]. The error says what is wrong with the name.
func NewToken(t config.Token) (token, line string, err error) {
	if err := config.CheckTokenName(t.Name); err != nil {
		return "", "", fmt.Errorf("making a token: %w", err)
	}
	secret := make([]byte, tokenBytes)
	rand.Read(secret) // it never fails
	token = base64.RawURLEncoding.EncodeToString(secret)
	return token, strings.TrimRight(fmt.Sprintf("%s:%s:%s:%s", t.Name, hashOf(token), t.Group, t.Rights), ":"), nil
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// identify returns the entry of the token with this hash, in constant time for all wrong tokens and
// for all correct ones.
func identify(all []config.Token, hash string) (t config.Token, ok bool) {
	found := 0
	for i := range all {
		same := subtle.ConstantTimeCompare([]byte(hash), []byte(all[i].SHA256))
		found = subtle.ConstantTimeSelect(same, i+1, found)
	}
	if found == 0 {
		return config.Token{}, false
	}
	return all[found-1], true
}

// parseTokens reads a token file: lines name:sha256[:group[:rights]], blank lines, and comments that
// begin with #. The error is that of the first bad line, which it names; it never shows the text after
// the first colon, which may be a token that was put there by mistake. The tokens are those of the
// good lines.
func parseTokens(data []byte) (out []config.Token, err error) {
	lines := map[string]int{} // by the hash
	n := 0
	for line := range bytes.Lines(data) {
		n++
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' {
			continue
		}
		t, fault := parseToken(text)
		if at := lines[t.SHA256]; fault == nil && at > 0 {
			first := out[slices.IndexFunc(out, func(o config.Token) bool { return o.SHA256 == t.SHA256 })]
			if first == t {
				continue
			}
			fault = fmt.Errorf(": %q has the sha256 of %q in line %d: one token cannot be two callers; deepwork "+
				"token new makes another", t.Name, first.Name, at)
		}
		if fault != nil {
			err = cmp.Or(err, fmt.Errorf("line %d%w", n, fault))
			continue
		}
		lines[t.SHA256] = n
		out = append(out, t)
	}
	return out, err
}

// parseToken reads a line of a token file. The caller puts the line's number before the error.
func parseToken(line string) (t config.Token, err error) {
	fields := strings.Split(line, ":")
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}

	if len(fields) < 2 || len(fields) > 4 {
		return t, errors.New(" is not name:sha256[:group[:rights]]; deepwork token new prints such a line")
	}

	t.Name = fields[0]
	if err := config.CheckTokenName(t.Name); err != nil {
		return t, fmt.Errorf(": %w", err)
	}
	if t.SHA256, err = config.ParseTokenHash(fields[1]); err != nil {
		return t, fmt.Errorf(": what follows %q %w", t.Name, err)
	}

	if len(fields) > 2 && fields[2] != "" {
		t.Group = fields[2]
		if config.CheckGroup(t.Group) != nil {
			return t, fmt.Errorf(": the group of %q is not 1 to 64 letters, digits, '.', '_' and '-'", t.Name)
		}
	}
	if len(fields) > 3 {
		if t.Rights, err = config.ParseRights(fields[3]); err != nil {
			return t, fmt.Errorf(": the rights of %q are not a comma list of %s", t.Name, config.AllRights)
		}
	}

	return t, nil
}

// tokenFileGrace is how long the tokens of a file that cannot be read stay in use: an editor may be
// replacing it.
const tokenFileGrace = 5 * time.Second

// A tokenFile is the file of --token-file. Each request reads it. A line with an error is left out, and if the
// file cannot be read, its tokens are in use for tokenFileGrace; both are logged.
type tokenFile struct {
	path   string
	logger *slog.Logger

	mu    sync.Mutex
	data  []byte // of good
	good  []config.Token
	bad   string    // the error that was logged last, "" if it is good
	since time.Time // when it could not be read any more; zero if it can
}

// openTokenFile opens a token file, which must be valid and have a token.
func openTokenFile(path string, logger *slog.Logger) (*tokenFile, error) {
	data, err := readTokens(path)
	tokens, fault := parseTokens(data)
	switch err = cmp.Or(err, fault); {
	case err != nil:
		return nil, fmt.Errorf("reading the token file %s: %w", path, err)
	case len(tokens) == 0:
		return nil,
			fmt.Errorf("the token file %s has no token: add the line that deepwork token new NAME prints to stderr",
				path)
	}

	return &tokenFile{path: path, logger: logger, data: data, good: tokens}, nil
}

// tokens returns the current tokens of the file.
func (f *tokenFile) tokens() []config.Token {
	tokens, _ := f.current()
	return tokens
}

// current returns the current tokens of the file, and whether it has an error that leaves none.
func (f *tokenFile) current() (tokens []config.Token, closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := readTokens(f.path)
	if err != nil {
		if f.since.IsZero() {
			f.since = time.Now()
		}
		f.fault("the token file cannot be read; its tokens are in use for a moment more, then they let nobody in", err)
		if time.Since(f.since) < tokenFileGrace {
			return f.good, false
		}
		return nil, true
	}
	if f.since.IsZero() && bytes.Equal(data, f.data) {
		return f.good, f.bad != "" && len(f.good) == 0
	}
	f.data, f.since = data, time.Time{}
	if f.good, err = parseTokens(data); err != nil {
		f.fault("the token file has an error; the tokens of its other lines are in use", err)
	} else if f.bad != "" {
		f.bad = ""
		f.logger.Info("the token file is good again", "file", f.path, "tokens", len(f.good))
	}
	return f.good, f.bad != "" && len(f.good) == 0
}

// fault logs why the file is not in use, once.
func (f *tokenFile) fault(message string, err error) {
	if why := err.Error(); why != f.bad {
		f.bad = why
		f.logger.Error(message, "file", f.path, "error", why)
	}
}

// readTokens reads a token file. The error does not name it.
func readTokens(path string) (data []byte, err error) {
	info, err := os.Stat(path) // opening a pipe would block
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("it is not a regular file")
	case info.Size() > maxTokenFile:
		err = fmt.Errorf("it is larger than %d bytes", maxTokenFile)
	default:
		if err = faultOfSecret(info); err == nil {
			data, err = os.ReadFile(path)
		}
	}

	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return data, err
}

// faultOfSecret returns why a file of secrets is not used, or nil: everybody can read it, or others
// may write to it. Windows has other means of protection.
func faultOfSecret(info fs.FileInfo) error {
	if fault := durable.FaultOf("it", info); fault != "" {
		return errors.New(fault)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0 {
		return errors.New("everybody can read it: run chmod 600 on it")
	}
	return nil
}
