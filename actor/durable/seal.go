package durable

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
)

// The seal is a record's last key. The hash is over every byte before it, and
// the seal itself has one legal spelling, so each bit of the file is covered.
const (
	sealHead = ",\n  \"checksum\": \"sha256:"
	sealTail = "\"\n}"
	sealSize = len(sealHead) + 2*sha256.Size + len(sealTail)
	bodyTail = "\n}"
)

var errUnsealed = errors.New("it does not end in a checksum line: it was cut off, or is no session record")

// Seal returns body with its checksum as the last key, and a fingerprint.
func Seal(body []byte) (sealed []byte, sum uint64, err error) {
	n := len(body) - len(bodyTail)
	if n < 2 || body[0] != '{' || string(body[n:]) != bodyTail {
		return nil, 0, errors.New("a record must be an indented JSON object that ends in a line with \"}\" alone")
	}
	switch body[n-1] {
	case '{', ',', '\n', ' ', '\r', '\t':
		return nil, 0, errors.New("a record must be an indented JSON object with at least one key")
	}
	if bytes.HasPrefix(body[max(0, len(body)-sealSize):], []byte(sealHead)) {
		return nil, 0, errors.New("a record must not have a checksum yet")
	}
	h := sha256.Sum256(body[:n])
	sealed = make([]byte, 0, n+sealSize)
	sealed = append(sealed, body[:n]...)
	return appendSeal(sealed, h), binary.BigEndian.Uint64(h[:]), nil
}

func appendSeal(b []byte, h [sha256.Size]byte) []byte {
	b = append(b, sealHead...)
	b = hex.AppendEncode(b, h[:])
	return append(b, sealTail...)
}

// Unseal verifies data and returns the body, which reuses data's memory.
func Unseal(data []byte) (body []byte, sum uint64, err error) {
	if len(data) == 0 {
		return nil, 0, errors.New("it is empty")
	}
	n := len(data) - sealSize
	if n < 2 || !bytes.HasPrefix(data[n:], []byte(sealHead)) {
		return nil, 0, errUnsealed
	}
	h := sha256.Sum256(data[:n])
	var want [sealSize]byte
	if !bytes.Equal(data[n:], appendSeal(want[:0], h)) {
		return nil, 0, errors.New("its checksum does not match: it was altered")
	}
	// A checksum that somebody computed over anything else than a body of
	// ours must not pass for one.
	if data[0] != '{' {
		return nil, 0, errors.New("it is not a JSON object")
	}
	return append(data[:n], bodyTail...), binary.BigEndian.Uint64(h[:]), nil
}
