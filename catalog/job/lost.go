package job

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
)

// A located text is a value or a comment in a file, with its path.
type located struct{ at, text string }

// textsOf returns the values and comments of a tree, and with keys also its keys, each with its path. It
// leaves out aliases: their texts are at the anchor.
func textsOf(n *yaml.Node, at string, keys bool) (all []located) {
	for _, comment := range []string{n.HeadComment, n.LineComment, n.FootComment} {
		if comment != "" {
			all = append(all, located{at, comment})
		}
	}
	if n.Kind == yaml.ScalarNode && !yamltree.IsNull(n) {
		all = append(all, located{at, n.Value})
	}

	for i, child := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			all = append(all, textsOf(child, fmt.Sprintf("%s[%d]", at, i), keys)...)
		case i%2 == 1:
			all = append(all, textsOf(child, strings.TrimPrefix(at+"."+n.Content[i-1].Value, "."), keys)...)
		default:
			key := *child
			if !keys {
				key.Kind = 0 // only its comments
			}
			all = append(all, textsOf(&key, strings.TrimPrefix(at+"."+child.Value, "."), keys)...)
		}
	}
	return all
}

// words returns the words of a text with a space before and after each, so that such texts can be joined.
func words(text string) string {
	found := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if len(found) == 0 {
		return ""
	}
	return " " + strings.Join(found, "  ") + " "
}

// keepLost appends to the new file, as comments, those texts of the old one that are neither in it nor in the
// changelog.
func (c *converter) keepLost(old, made *yaml.Node) {
	texts, whole := textsOf(old, "", false), map[string]int{} // how many texts of these words more the new one has
	var was, is strings.Builder
	for _, t := range texts {
		was.WriteString(words(t.text))
		whole[words(t.text)]--
	}
	for _, t := range textsOf(made, "", true) {
		is.WriteString(words(t.text))
		whole[words(t.text)]++
	}
	before, now := was.String(), is.String()+words(c.Changelog)

	// Longest first, so that no text matches the end of another one.
	slices.SortStableFunc(texts, func(x, y located) int { return len(y.text) - len(x.text) })
	var b bytes.Buffer
	for _, t := range texts {
		phrase := words(t.text)
		if phrase == "" || whole[phrase] >= 0 || strings.Count(now, phrase) >= strings.Count(before, phrase) {
			continue
		}

		now += phrase
		line := t.at + ": " + strings.TrimSpace(t.text)
		if strings.ContainsFunc(line, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }) {
			line = strconv.QuoteToGraphic(line)
		}
		fmt.Fprintf(&b, "# %s\n", strings.ReplaceAll(line, "\n", "\n#   "))
	}
	if b.Len() > 0 {
		const heading = "\n# Of the file as it was; this format has no place for it:\n"
		c.Source = slices.Concat(c.Source, []byte(heading), b.Bytes())
		c.note("what has no place in this format is kept in comments at the end")
	}
}
