package durable

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/fnv"
	"path/filepath"
)

// A Sealer signs the contents of files together with their names. Its methods may be called from
// any goroutine.
type Sealer interface {
	// Sign returns a signature: lower-case letters, digits, colons and hyphens.
	Sign(name string, content []byte) (string, error)
	// Verify returns nil if the signature is the one of this name and content, and a *ForeignError
	// if it is not. Any other error means that it could not be checked.
	Verify(name string, content []byte, signature string) error
}

// A ForeignError means that a file is complete but not signed as it is by the Sealer.
type ForeignError struct {
	Reason string // refers to the file as "it"
}

func (e *ForeignError) Error() string { return e.Reason }

// The seal is a record's last key. The signature covers every byte before it, and the seal has only
// one legal spelling, so each bit of the file is covered.
const (
	sealHead = ",\n  \"checksum\": \""
	sealTail = "\"\n}"
	bodyTail = "\n}"
	maxSeal  = 256 // bytes
)

// Seal returns body, the new content of the file at path, with a signature as the last key, and a
// fingerprint.
func Seal(path string, body []byte, s Sealer) (sealed []byte, sum uint64, err error) {
	n := len(body) - len(bodyTail)
	if n < 2 || body[0] != '{' || string(body[n:]) != bodyTail {
		return nil, 0, errors.New("a record must be an indented JSON object that ends in a line with \"}\" alone")
	}
	switch body[n-1] {
	case '{', ',', '\n', ' ', '\r', '\t':
		return nil, 0, errors.New("a record must be an indented JSON object with at least one key")
	}
	if _, _, is := cutSeal(body); is {
		return nil, 0, errors.New("a record must not have a checksum yet")
	}
	signature, err := s.Sign(filepath.Base(path), body[:n])
	if err != nil {
		return nil, 0, err
	}
	sealed = make([]byte, 0, n+len(sealHead)+len(signature)+len(sealTail))
	return appendSeal(append(sealed, body[:n]...), signature), fingerprint(signature), nil
}

func appendSeal(b []byte, signature string) []byte {
	return append(append(append(b, sealHead...), signature...), sealTail...)
}

func fingerprint(signature string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(signature))
	return h.Sum64()
}

// cutSeal splits a file into its content and signature, if it ends in a seal.
func cutSeal(data []byte) (content []byte, signature string, is bool) {
	rest, is := bytes.CutSuffix(data, []byte(sealTail))
	from := max(0, len(rest)-maxSeal)
	n := bytes.LastIndex(rest[from:], []byte(sealHead))
	if !is || n < 0 || from+n < 2 {
		return nil, "", false
	}
	signature = string(rest[from+n+len(sealHead):])
	for _, c := range []byte(signature) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != ':' && c != '-' {
			return nil, "", false
		}
	}
	return data[:from+n], signature, signature != ""
}

// Unseal verifies the content of the file at path and returns the body, which reuses data's memory.
// It returns a *BadFileError if the content is damaged, a *ForeignError if it is complete but not
// sealed by s, or the error of s.
func Unseal(path string, data []byte, s Sealer) (body []byte, sum uint64, err error) {
	damaged := func(reason string) ([]byte, uint64, error) { return nil, 0, &BadFileError{path, reason} }
	if len(data) == 0 {
		return damaged("it is empty")
	}
	err = error(&ForeignError{"it has no seal"})
	content, signature, sealed := cutSeal(data)
	if sealed {
		err = s.Verify(filepath.Base(path), content, signature)
	}
	_, foreign := errors.AsType[*ForeignError](err)
	switch {
	case err == nil && content[0] == '{':
		return append(content, bodyTail...), fingerprint(signature), nil
	case err == nil: // signed, but the content is not a body of ours
		return damaged("it is not a JSON object")
	case !foreign, data[0] == '{' && json.Valid(data):
		return nil, 0, err
	case sealed:
		return damaged("its checksum does not match: it was altered")
	}
	return damaged("it does not end in a checksum line: it was cut off, or is not a session record")
}
