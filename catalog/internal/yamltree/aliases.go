package yamltree

import "gopkg.in/yaml.v3"

// Bounds of what the aliases of a file may add to it: nodes that are visited again, and bytes of
// text that are repeated.
const (
	maxAliasNodes = 100_000
	maxAliasBytes = 1 << 20
)

// checkAliases walks the tree at most as its reader would, and reports a fault if an alias contains
// itself or all of them together expand too much.
func (d *Decoder) checkAliases(root *yaml.Node) bool {
	w := aliasWalk{open: map[*yaml.Node]bool{}}
	w.walk(root, nil)
	switch {
	case w.circle != nil:
		d.FaultIn(At(w.circle), "", "the alias *%s is inside the value it names, so it would never end: write the value out", Clip(w.circle.Value))
	case w.excess != nil:
		d.FaultIn(At(w.excess), "", "the aliases of this file expand to more than %d values or %d bytes (here at *%s): write less with aliases", maxAliasNodes, maxAliasBytes, Clip(w.excess.Value))
	default:
		return true
	}
	return false
}

type aliasWalk struct {
	open           map[*yaml.Node]bool // anchored nodes that are being walked
	nodes, bytes   int
	circle, excess *yaml.Node
}

// walk visits n; via is the outermost alias that led here, or nil.
func (w *aliasWalk) walk(n, via *yaml.Node) {
	if w.circle != nil || w.excess != nil {
		return
	}
	if via != nil {
		w.nodes++
		w.bytes += len(n.Value)
		if w.nodes > maxAliasNodes || w.bytes > maxAliasBytes {
			w.excess = via
			return
		}
	}
	if n.Kind == yaml.AliasNode {
		if w.open[n.Alias] {
			w.circle = n
			return
		}
		if via == nil {
			via = n
		}
		w.walk(n.Alias, via)
		return
	}
	if n.Anchor != "" {
		w.open[n] = true
		defer delete(w.open, n)
	}
	for _, c := range n.Content {
		w.walk(c, via)
	}
}
