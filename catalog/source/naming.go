package source

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"
)

// maxToolName is the limit of the strictest clients: ^[a-zA-Z0-9_-]{1,64}$.
const maxToolName = 64

// maxIDSuffix leaves room for the longest prefix and a digest before the suffix.
const maxIDSuffix = 22

// legal makes a text valid in a tool's name: each run of characters other than ASCII letters,
// digits, '_' and '-' becomes one '_'. It may return "".
func legal(s string) string {
	var b strings.Builder
	gap := false
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			if gap && b.Len() > 0 {
				b.WriteByte('_')
			}
			gap = false
			b.WriteRune(r)
		default:
			gap = true
		}
	}

	return b.String()
}

// digest returns a short, stable digest of a text: n hex digits.
func digest(s string, n int) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:n]
}

// shorten cuts a name that is too long and appends a digest of whole, so that two names with the same
// beginning stay different.
func shorten(name, whole string, most int) string {
	if len(name) <= most {
		return name
	}
	return name[:most-9] + "_" + digest(whole, 8)
}

// plainName returns the name of a tool if no other tool shares it.
func plainName(prefix string, w *Workflow) string {
	base := legal(w.Name)
	if strings.HasPrefix(strings.ToLower(prefix+base), "mcp__") { // clients give such names to tools of other servers
		base = "source_" + base
	}
	base = cmp.Or(base, legal(w.ID), "workflow")
	return shorten(prefix+base, prefix+w.Name, maxToolName)
}

// comparableName returns a name without differences that readers overlook.
func comparableName(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(name))
}

// nameAll gives each workflow the name of its tool. Names depend only on what is offered, not on its order.
// All workflows that share a name, or whose name looks like a reserved one, get their id as a suffix; those
// that still clash get a digest of source and id. A workflow without a name even then is skipped; its name
// here is "".
//
// sources are current and former names of tools, with their sources. A workflow of another source does not
// get such a name, since callers mean the tool that they know.
func nameAll(all []*offered, prefix string, reserved []string, sources map[string]string) []string {
	names := make([]string, len(all))
	others := func(i int) bool {
		source, known := sources[names[i]]
		return known && source != all[i].Source
	}
	sharing := make(map[string]int, len(all))
	taken := make(map[string]bool, len(all)+len(reserved))
	imitated := make(map[string]bool, len(reserved))
	for _, name := range reserved {
		sharing[name] = 1
		taken[name] = true
		imitated[comparableName(name)] = true
	}
	for i, w := range all {
		names[i] = plainName(prefix, &w.Workflow)
		sharing[names[i]]++
	}

	var second []int
	for i, name := range names {
		if sharing[name] == 1 && !taken[name] && !imitated[comparableName(name)] && !others(i) {
			taken[name] = true
			continue
		}
		second = append(second, i)
	}

	clear(sharing)
	for _, i := range second {
		of := all[i].ID // (seed 003, 6.4)
		id := shorten(cmp.Or(legal(of), digest(of, 8)), of, maxIDSuffix)
		names[i] = shorten(names[i], names[i], maxToolName-1-len(id)) + "_" + id
		sharing[names[i]]++
	}

	var third []int
	for _, i := range second {
		if sharing[names[i]] > 1 || taken[names[i]] || imitated[comparableName(names[i])] || others(i) {
			third = append(third, i)
			continue
		}
		taken[names[i]] = true
	}

	// A name that was chosen to look like such a digest goes to the first workflow by source and id.
	slices.SortFunc(third, func(a, b int) int {
		return cmp.Or(strings.Compare(all[a].Source, all[b].Source), strings.Compare(all[a].ID, all[b].ID))
	})
	for _, i := range third {
		name := shorten(names[i], names[i], maxToolName-13) + "_" + digest(all[i].Source+"\x00"+all[i].ID, 12)
		if taken[name] {
			name = ""
		}
		names[i], taken[name] = name, true
	}

	return names
}

// included applies the config's filters to a workflow's name (seed 003, 4.2).
func included(name string, include, exclude []string) bool {
	matches := func(globs []string) bool {
		return slices.ContainsFunc(globs, func(glob string) bool {
			ok, err := path.Match(glob, name)
			return ok && err == nil
		})
	}
	return (len(include) == 0 || matches(include)) && !matches(exclude)
}
