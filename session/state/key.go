package state

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"deepwork/actor/durable"
)

const (
	keyFile   = "key"
	tokenFile = "token"
	keySize   = 32 // bytes
)

// A Key is the secret of an installation. It identifies the machine in a shared store, and its
// signatures prove that this user's deepwork made something on this machine.
type Key struct {
	id     string
	secret []byte
}

// Key returns the key of the installation. If it is missing, Key creates it if make is set; otherwise, as in
// read-only commands, the error is ErrMissing.
func (f *Folder) Key(make bool) (*Key, error) {
	secret, err := f.secret(filepath.Join(f.Base, keyFile), "the key of the installation",
		"remove it, which makes this machine another one for a shared store", make)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append([]byte("deepwork key id\n"), secret...))
	return &Key{hex.EncodeToString(sum[:4]), secret}, nil
}

// Token returns the user's bearer token for the project's servers, for systems on which servers cannot know
// whose a connection is. If it is missing, Token creates it if make is set; otherwise the error is
// ErrMissing. All servers of the project have the same token.
func (f *Folder) Token(make bool) (string, error) {
	secret, err := f.secret(filepath.Join(f.Dir, tokenFile), "the token of the project's servers",
		"remove it, so that the next server makes another", make)
	return base64.RawURLEncoding.EncodeToString(secret), err
}

// secret reads a file of keySize random bytes that only this user may read. what is its name in errors, and
// replace says how to replace it.
func (f *Folder) secret(path, what, replace string, make bool) ([]byte, error) {
	secret, fi, err := durable.Read(path, keySize)
	if errors.Is(err, fs.ErrNotExist) && !make {
		return nil, ErrMissing
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err := f.Make(); err != nil {
			return nil, err
		}

		var made [keySize]byte
		rand.Read(made[:]) // never fails
		if err := putNew(path, made[:]); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("making %s: %w", what, err)
		}
		secret, fi, err = durable.Read(path, keySize)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, durable.Explain(err, path))
	}
	if len(secret) != keySize {
		return nil, fmt.Errorf("%s has %d bytes, expected %d: restore it, or %s", path, len(secret), keySize, replace)
	}
	if err := privateFile(path, fi); err != nil {
		return nil, err
	}
	return secret, nil
}

// ID identifies a key by 8 hexadecimal digits that reveal nothing about the secret.
func (k *Key) ID() string { return k.id }

// Sign returns the result of Key.Sign for the project. It creates the key and the folder if they are missing,
// and blocks for the disk.
func (f *Folder) Sign(name string, content []byte) ([]byte, error) {
	if err := f.Make(); err != nil {
		return nil, err
	}

	key, err := f.Key(true)
	if err != nil {
		return nil, err
	}

	id, err := f.ID()
	if err != nil {
		return nil, err
	}
	return key.Sign(id, name, content), nil
}

// Sign returns the HMAC-SHA256 of the project's id, a name and a content.
func (k *Key) Sign(project, name string, content []byte) []byte {
	mac := hmac.New(sha256.New, k.secret)
	fmt.Fprintf(mac, "%s\n%d %s\n", project, len(name), name)
	mac.Write(content)
	return mac.Sum(nil)
}
