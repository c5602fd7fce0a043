package execution

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
)

// The seal of a journal's line is its record's last key, as in the files of
// sessions: the sum is over every byte before it, and the seal itself has one legal
// spelling, so each bit of the line is covered. CRC32C finds what a disk does to a
// line, and costs next to nothing; nobody is kept from forging one.
const (
	sealHead = `,"checksum":"`
	sealTail = `"}`
	sumHead  = "crc32c:"
	sealSize = len(sealHead) + len(sumHead) + 2*crc32.Size + len(sealTail)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errAltered = errors.New("its checksum does not match: it was altered")

// checksum is how a sum of data is written.
func checksum(data []byte) string {
	return string(appendSum(nil, crc32.Checksum(data, castagnoli)))
}

func appendSum(b []byte, sum uint32) []byte {
	var four [crc32.Size]byte
	binary.BigEndian.PutUint32(four[:], sum)
	b = append(b, sumHead...)
	return hex.AppendEncode(b, four[:])
}

func appendSeal(b []byte, sum uint32) []byte {
	b = append(b, sealHead...)
	b = appendSum(b, sum)
	return append(b, sealTail...)
}

// seal puts the seal into the record, as JSON, that begins at from and ends all.
func seal(all *bytes.Buffer, from int) {
	all.Truncate(all.Len() - len("}"))
	sum := crc32.Checksum(all.Bytes()[from:], castagnoli)
	var room [sealSize]byte
	all.Write(appendSeal(room[:0], sum))
}

// verify tells whether a line has a seal; errAltered: one that is not its own.
func verify(raw []byte) (sealed bool, err error) {
	n := len(raw) - sealSize
	if n < 0 || !bytes.HasPrefix(raw[n:], []byte(sealHead+sumHead)) {
		return false, nil
	}
	if !sealsAt(raw, n, crc32.Checksum(raw[:n], castagnoli)) {
		return true, errAltered
	}
	return true, nil
}

// sealsAt tells whether the seal of this sum stands at a place.
func sealsAt(raw []byte, n int, sum uint32) bool {
	var want [sealSize]byte
	return bytes.HasPrefix(raw[n:], appendSeal(want[:0], sum))
}

// sealedEnd returns where the seal of what raw begins with ends; 0: there is none.
func sealedEnd(raw []byte) int {
	sum := uint32(0)
	for n := 0; ; n++ {
		next := bytes.Index(raw[n:], []byte(sealHead))
		if next < 0 {
			return 0
		}
		sum = crc32.Update(sum, castagnoli, raw[n:n+next])
		if n += next; sealsAt(raw, n, sum) {
			return n + sealSize
		}
		sum = crc32.Update(sum, castagnoli, raw[n:n+1])
	}
}
