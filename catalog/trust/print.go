package trust

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"deepwork/actor/xslices"
	"deepwork/catalog/config"
)

// Print prints what an entry asks for, with its texts quoted, so that each character is seen for what
// it is and cannot move the cursor.
func (e Entry) Print(w io.Writer, indent string) {
	if e.Key == config.AgentsKey {
		fmt.Fprintf(w, "%scoding agents may be started here, with all your rights\n", indent)
		return
	}
	var value any
	if json.Unmarshal(e.Value, &value) == nil {
		showValue(w, indent, "", value)
	}
	checked := false
	for _, name := range slices.Sorted(maps.Keys(e.Files)) {
		if sum := e.Files[name]; sum != "" {
			fmt.Fprintf(w, "%schecks the content of %s (SHA-256 %.12s…)\n", indent, Quote(name), sum)
			checked = true
		}
	}
	for _, word := range e.Unchecked {
		fmt.Fprintf(w, "%sdoes NOT check the content of %s\n", indent, Quote(word))
	}
	if e.Runs && !checked && len(e.Unchecked) == 0 {
		fmt.Fprintf(w, "%sdoes NOT check the content of what it runs\n", indent)
	}
}

var blanks = regexp.MustCompile(` {4,}`)

// Quote quotes a text so that each of its characters is seen for what it is: what is not ASCII is
// escaped, and of many blanks their number is shown.
func Quote(text string) string {
	return blanks.ReplaceAllStringFunc(strconv.QuoteToASCII(text), func(run string) string {
		return fmt.Sprintf(`\x20{%d}`, len(run))
	})
}

// Word is Quote without the quotation marks where nothing is escaped.
func Word(text string) string {
	if safe := Quote(text); safe != `"`+text+`"` {
		return safe
	}
	return text
}

// showValue prints the settings in a value, one line per key.
func showValue(w io.Writer, indent, name string, value any) {
	switch v := value.(type) {
	case nil:
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			under := Word(key)
			if name != "" {
				under = name + "." + under
			}
			showValue(w, indent, under, v[key])
		}
	case []any:
		showLine(w, indent, name, strings.Join(xslices.Map(v, func(word any) string { return Quote(fmt.Sprint(word)) }), " "))
	case string:
		if v != "" || strings.HasPrefix(name, "env.") || strings.Contains(name, ".env.") {
			showLine(w, indent, name, Quote(v))
		}
	default:
		showLine(w, indent, name, fmt.Sprint(v))
	}
}

func showLine(w io.Writer, indent, name, text string) {
	if name != "" {
		name += ": "
	}
	fmt.Fprintf(w, "%s%s%s\n", indent, name, text)
}
