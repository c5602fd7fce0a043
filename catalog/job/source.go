package job

import (
	"bytes"
	"unicode/utf8"
)

// maxDirectives bounds the %TAG lines of a file: the YAML parser compares each
// with all before it.
const maxDirectives = 16

var (
	utf8BOM    = []byte("\xef\xbb\xbf")
	utf16BOMs  = [][]byte{[]byte("\xff\xfe"), []byte("\xfe\xff")}
	tagKeyword = []byte("%TAG")
)

// checkBytes refuses what is not text that YAML may hold, and returns the text
// without its byte order mark.
func (d *decoder) checkBytes(source []byte) ([]byte, bool) {
	if len(source) > MaxBytes {
		d.add(place{}, "", "is larger than %d bytes (1 MiB): move long texts to instructions files, or make two jobs of it", MaxBytes)
		return nil, false
	}
	for _, bom := range utf16BOMs {
		if bytes.HasPrefix(source, bom) {
			d.add(place{1, 1}, "", "is UTF-16: save the file as UTF-8")
			return nil, false
		}
	}
	body := bytes.TrimPrefix(source, utf8BOM)
	if at, ok := firstBad(body); ok {
		where, offset := placeAt(body, at), at+len(source)-len(body)
		r, size := utf8.DecodeRune(body[at:])
		switch {
		case r == utf8.RuneError && size <= 1:
			d.add(where, "", "the byte 0x%02x at offset %d is not UTF-8: save the file as UTF-8", body[at], offset)
		case r == 0:
			d.add(where, "", "the byte at offset %d is NUL: this is not a text file, or it was cut off while it was written; write it anew", offset)
		default:
			d.add(where, "", "the character %U at offset %d is not allowed in YAML: remove it, or write it as an escape in double quotes", r, offset)
		}
		return nil, false
	}
	if at, ok := excessDirective(body); ok {
		d.add(placeAt(body, at), "", "there are more than %d %%TAG directives: remove them, a job needs none", maxDirectives)
		return nil, false
	}
	return body, true
}

// firstBad finds the first byte that does not begin a character YAML allows.
func firstBad(b []byte) (int, bool) {
	for i := 0; i < len(b); {
		c := b[i]
		if c >= 0x20 && c < 0x7f || c == '\n' || c == '\r' || c == '\t' {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			return i, true
		}
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size <= 1 || r < 0xa0 && r != 0x85 || r == 0xfeff || r == 0xfffe || r == 0xffff {
			return i, true
		}
		i += size
	}
	return 0, false
}

func excessDirective(b []byte) (int, bool) {
	count := 0
	for at := 0; at < len(b); {
		if bytes.HasPrefix(b[at:], tagKeyword) {
			if count++; count > maxDirectives {
				return at, true
			}
		}
		// The YAML parser ends a line at a lone carriage return too, and at the
		// breaks of Unicode, so the next % may follow any of them.
		next := bytes.Index(b[at+1:], tagKeyword)
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return 0, false
}

// placeAt gives the line and column of an offset.
func placeAt(b []byte, offset int) place {
	before := b[:offset]
	start := bytes.LastIndexByte(before, '\n') + 1
	return place{
		line:   bytes.Count(before, []byte{'\n'}) + 1,
		column: utf8.RuneCount(before[start:]) + 1,
	}
}
