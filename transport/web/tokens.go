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
	"strings"
	"sync"

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

// identify returns the entry of this token, in constant time for all wrong tokens and for all
// correct ones.
func identify(all []config.Token, token string) (t config.Token, ok bool) {
	hash := []byte(hashOf(token))
	found := 0
	for i := range all {
		same := subtle.ConstantTimeCompare(hash, []byte(all[i].SHA256))
		found = subtle.ConstantTimeSelect(same, i+1, found)
	}
	if found == 0 {
		return config.Token{}, false
	}
	return all[found-1], true
}

// parseTokens reads a token file: lines name:sha256[:group[:rights]], blank lines, and comments that
// begin with #. The error names the line and never shows the text after the first colon, which may be a
// token that was put there by mistake.
func parseTokens(data []byte) ([]config.Token, error) {
	var out []config.Token
	n := 0
	for line := range bytes.Lines(data) {
		n++
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' {
			continue
		}
		fields := strings.Split(text, ":")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		if len(fields) < 2 || len(fields) > 4 {
			return nil, fmt.Errorf("line %d is not name:sha256[:group[:rights]]; deepwork token new prints such a line", n)
		}
		t := config.Token{Name: fields[0]}
		if err := config.CheckTokenName(t.Name); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		var err error
		if t.SHA256, err = config.ParseTokenHash(fields[1]); err != nil {
			return nil, fmt.Errorf("line %d: what follows %q %w", n, t.Name, err)
		}
		if len(fields) > 2 && fields[2] != "" {
			t.Group = fields[2]
			if config.CheckGroup(t.Group) != nil {
				return nil, fmt.Errorf("line %d: the group of %q is not 1 to 64 letters, digits, '.', '_' and '-'", n, t.Name)
			}
		}
		if len(fields) > 3 {
			if t.Rights, err = config.ParseRights(fields[3]); err != nil {
				return nil, fmt.Errorf("line %d: the rights of %q are not a comma list of %s", n, t.Name, config.AllRights)
			}
		}
		out = append(out, t)
	}
	return out, nil
}

// A tokenFile is the file of --token-file. Each request reads it; if a change is bad or the file
// vanishes, the last good tokens remain in use and the fault is logged.
type tokenFile struct {
	path   string
	logger *slog.Logger

	mu   sync.Mutex
	data []byte // as last read
	good []config.Token
	bad  string // why its newest content is not in use
}

// openTokenFile opens a token file, which must be valid and have a token.
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

// tokens returns the current tokens of the file.
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
