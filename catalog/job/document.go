package job

import (
	"bytes"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
)

const emptyFile = "is empty: write name, version, summary, common_job_info_provided_to_all_steps_at_runtime, steps and workflows"

// maxDirectives bounds the %TAG lines of a file: the YAML parser compares each
// with all before it.
const maxDirectives = 16

var utf8BOM = []byte("\xef\xbb\xbf")

// document returns the root of the one YAML document of a file. The time to walk the tree is
// bounded, whatever its aliases are.
func (d *decoder) document(source []byte) (*yaml.Node, bool) {
	body, ok := d.checkBytes(source)
	if !ok {
		return nil, false
	}
	doc, second, err := yamltree.Documents(bytes.NewReader(body))
	switch {
	case err != nil:
		d.syntaxFault(body, err)
		return nil, false
	case doc == nil:
		d.FaultIn(yamltree.Position{Line: 1, Column: 1}, "", emptyFile)
		return nil, false
	case second != nil: // report the faults of the first too
		d.FaultIn(yamltree.At(second), "", "a second document begins here: a job is one document, remove the --- and what follows it, or move that to a separate job")
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		d.FaultIn(yamltree.At(root), "", emptyFile)
		return nil, false
	}
	if !d.CheckAliases(root) {
		return nil, false
	}
	return root, true
}

// checkBytes refuses a file that is not text or that YAML does not allow, and returns the text
// without its byte order mark.
func (d *decoder) checkBytes(source []byte) ([]byte, bool) {
	fault := func(at yamltree.Position, format string, args ...any) ([]byte, bool) {
		d.FaultIn(at, "", format, args...)
		return nil, false
	}
	switch {
	case len(source) > MaxBytes:
		return fault(yamltree.Position{}, "is larger than %d bytes (1 MiB): move long texts to instructions files, or make two jobs of it", MaxBytes)
	case bytes.HasPrefix(source, []byte("\xff\xfe")), bytes.HasPrefix(source, []byte("\xfe\xff")):
		return fault(yamltree.Position{Line: 1, Column: 1}, "is UTF-16: save the file as UTF-8")
	}
	body := bytes.TrimPrefix(source, utf8BOM)
	if at, ok := firstBad(body); ok {
		where, offset := yamltree.PositionAt(body, at), at+len(source)-len(body)
		r, size := utf8.DecodeRune(body[at:])
		switch {
		case r == utf8.RuneError && size <= 1:
			return fault(where, "the byte 0x%02x at offset %d is not UTF-8: save the file as UTF-8", body[at], offset)
		case r == 0:
			return fault(where, "the byte at offset %d is NUL: this is not a text file, or it was cut off while it was written; write it again", offset)
		}
		return fault(where, "the character %U at offset %d is not allowed in YAML: remove it, or write it as an escape in double quotes", r, offset)
	}
	// The YAML parser also ends a line at a lone carriage return and at Unicode line breaks, so a
	// directive may be anywhere.
	if texts := bytes.Split(body, []byte("%TAG")); len(texts)-1 > maxDirectives {
		at := len(bytes.Join(texts[:maxDirectives+1], []byte("%TAG")))
		return fault(yamltree.PositionAt(body, at), "there are more than %d %%TAG directives: remove them, a job needs none", maxDirectives)
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
