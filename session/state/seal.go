package state

import (
	"crypto/hmac"
	"encoding/hex"
	"errors"
	"regexp"
	"strings"

	"deepwork/actor/durable"
)

// A Folder seals files that are not in it, but in the project, where anybody may write: a signature
// proves that this user's deepwork wrote the file for this project, under this name.
var _ durable.Sealer = (*Folder)(nil)

// A signer holds the inputs of a signature.
type signer struct {
	key     *Key
	project string
}

func (s *signer) sign(name string, content []byte) string {
	return "hmac-sha256:" + s.key.ID() + ":" + hex.EncodeToString(s.key.Sign(s.project, name, content))
}

// Sign returns "hmac-sha256:", the id of the installation's key, ":" and the HMAC over the
// project's id, the file's name and its content, in hexadecimal digits. The first call creates the
// key and the folder, and blocks for the disk.
func (f *Folder) Sign(name string, content []byte) (string, error) {
	s, err := f.signer(true)
	if err != nil {
		return "", err
	}
	return s.sign(name, content), nil
}

// Verify implements durable.Sealer. It creates no key and no folder: without them no file belongs
// to this project.
func (f *Folder) Verify(name string, content []byte, signature string) error {
	foreign := func(reason string) error { return &durable.ForeignError{Reason: reason} }
	form := signatureForm.FindStringSubmatch(signature)
	if strings.HasPrefix(signature, "sha256:") {
		return foreign("it has the plain checksum of an earlier version")
	} else if form == nil {
		return foreign("it has no seal of deepwork")
	}
	s, err := f.signer(false)
	switch {
	case errors.Is(err, ErrMissing):
		return foreign("it was sealed with the key " + form[1] + ", and here nothing was sealed for this project yet")
	case err != nil:
		return err
	case s.key.ID() != form[1]:
		return foreign("it was sealed by another installation, with the key " + form[1])
	case !hmac.Equal([]byte(s.sign(name, content)), []byte(signature)):
		return foreign("it was altered after it was sealed, or comes from another project or file")
	}
	return nil
}

// signer returns the inputs of signatures, which are read once. If they are missing and make is
// false, the error is ErrMissing.
func (f *Folder) signer(make bool) (*signer, error) {
	if s := f.signs.Load(); s != nil {
		return s, nil
	}
	if make {
		if err := f.Make(); err != nil {
			return nil, err
		}
	}
	key, err := f.Key(make)
	if err != nil {
		return nil, err
	}
	id, err := f.ID()
	if err != nil {
		return nil, err
	}
	s := &signer{key, id}
	f.signs.Store(s)
	return s, nil
}

var signatureForm = regexp.MustCompile(`^hmac-sha256:([0-9a-f]{8}):[0-9a-f]{64}$`)
