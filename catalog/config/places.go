package config

import (
	"bytes"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
)

// Places returns the line of each key of a config file, by path: git.branch, and
// workflow_tools.sources.ci for the list entry with the name ci. Unreadable parts are left out.
func Places(source []byte) map[string]int {
	lines := make(map[string]int)
	doc, _, err := yamltree.Documents(bytes.NewReader(source))
	if err == nil && doc != nil && len(doc.Content) > 0 {
		places(doc.Content[0], "", 0, lines)
	}
	return lines
}

func places(n *yaml.Node, path string, depth int, lines map[string]int) {
	if depth > 4 {
		return
	}
	add := func(name string, at, value *yaml.Node) {
		if path != "" {
			name = path + "." + name
		}
		lines[name] = at.Line
		places(value, name, depth+1, lines)
	}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			add(yamltree.Target(n.Content[i]).Value, n.Content[i], n.Content[i+1])
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			entry := yamltree.Target(item)
			for i := 0; entry.Kind == yaml.MappingNode && i+1 < len(entry.Content); i += 2 {
				if yamltree.Target(entry.Content[i]).Value == "name" {
					add(yamltree.Target(entry.Content[i+1]).Value, item, entry)
				}
			}
		}
	}
}
